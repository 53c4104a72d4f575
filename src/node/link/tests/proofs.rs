//! Nodes that prove to belong together, and others.

use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, Certificate, CertificateParams, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio_rustls::TlsConnector;

use super::super::error::StartError;
use super::super::greeting::{Greeting, Purpose, Verdict};
use super::super::security::Guard;
use super::*;

fn with(security: Security, number: u64) -> LinkSettings {
    LinkSettings { security, ..settings(number) }
}

pub(super) fn secret(folder: &TempDir, name: &str) -> Security {
    let path = folder.path().join(name);
    write(&path, format!("a secret of node {name}, long enough to be one\n")).unwrap();
    set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    Security::Secret(path)
}

/// An authority of nodes, whose files lie in a folder.
struct Authority {
    folder: PathBuf,
    certificate: Certificate,
    key: KeyPair,
}

impl Authority {
    fn new(folder: &Path) -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        std::fs::create_dir(folder).unwrap();
        write(folder.join("authority"), certificate.pem()).unwrap();
        Authority { folder: folder.to_owned(), certificate, key }
    }

    /// Makes a certificate for a host.
    fn certify(&self, host: &str) -> Security {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.certificate, &self.key).unwrap();
        let path = |kind| self.folder.join(format!("{host}-{kind}"));
        write(path("certificate"), certificate.pem()).unwrap();
        write(path("key"), key.serialize_pem()).unwrap();
        Security::Certificates {
            certificate: path("certificate"),
            key: path("key"),
            authority: self.folder.join("authority"),
        }
    }
}

/// Sends a message of every kind from node 1 to node 2.
async fn exchange(security: [Security; 2]) {
    let [one, two] = security;
    let (one, two) = pair(with(one, 1), with(two, 2)).await;
    until("connected", || one.is_connected() && two.is_connected()).await;
    let sent = every_kind();
    sent.iter().for_each(|message| one.links.send(message.clone()));
    until("all messages", || two.messages().len() == sent.len()).await;
    let received = two.messages();
    assert!(sent.iter().all(|message| received.contains(message)));
    // And the other way, on the other connection.
    two.links.send(Message { from: node(2), to: node(1), ..heartbeat(4) });
    until("an answer", || one.messages().len() == 1).await;
    let (one, two) = (&one.links.facts()[0], &two.links.facts()[0]);
    assert_eq!(one.dropped + two.dropped, 0);
    assert_eq!((one.sending.bytes, two.sending.bytes), (two.receiving.bytes, one.receiving.bytes));
    assert!(one.sending.bytes > 300_000, "{one:?}");
}

#[test]
fn every_kind_of_message_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(&folder.path().join("ours"));
    let certified = || authority.certify("localhost");
    run(async {
        exchange([Security::Plain, Security::Plain]).await;
        exchange([secret(&folder, "a"), secret(&folder, "a")]).await;
        exchange([certified(), certified()]).await;
    });
}

/// Runs two nodes that do not belong together, and returns why each could not dial the other.
async fn refused(one: LinkSettings, two: LinkSettings) -> [String; 2] {
    let (one, two) = pair(one, two).await;
    until("refused", || !one.failure().is_empty() && !two.failure().is_empty()).await;
    assert!(!one.is_connected() && !two.is_connected() && !one.is_received_from() && !two.is_received_from());
    [one.failure(), two.failure()]
}

#[test]
fn nodes_with_different_proofs_do_not_talk() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, foreign) = (Authority::new(&folder.path().join("ours")), Authority::new(&folder.path().join("foreign")));
    run(async {
        let failures = refused(with(secret(&folder, "a"), 1), with(secret(&folder, "b"), 2)).await;
        assert_eq!(failures, ["the other end has another secret"; 2]);
        let failures = refused(with(ours.certify("localhost"), 1), with(foreign.certify("localhost"), 2)).await;
        assert!(failures.iter().all(|failure| failure.contains("no certificate that is valid here")), "{failures:?}");
        let failures = refused(with(ours.certify("elsewhere"), 1), with(ours.certify("elsewhere"), 2)).await;
        assert!(failures.iter().all(|failure| failure.contains("elsewhere")), "{failures:?}");
        for secured in [secret(&folder, "a"), ours.certify("localhost")] {
            let [one, two] = refused(with(secured, 1), settings(2)).await;
            assert!(!one.is_empty() && !two.is_empty());
        }
        refused(with(secret(&folder, "a"), 1), with(ours.certify("localhost"), 2)).await;
    });
}

fn of_history(number: u64, history: u8) -> LinkSettings {
    let settings = settings(number);
    LinkSettings { identity: Identity { history: History([history; 16]), ..settings.identity }, ..settings }
}

#[test]
fn a_node_with_another_directory_than_the_one_that_joined_is_refused_by_both_ends() {
    run(async {
        let (one, two) = (Node::start(settings(1)).await, Node::start(settings(2)).await);
        let home = |number: u64, at: &Node, birth: u64| PeerHome {
            node: node(number),
            address: at.address(),
            birth: Some(home_of(node(birth)).birth),
        };
        one.links.set_peers(&[home(2, &two, 3)]);
        two.links.set_peers(&[home(1, &one, 1)]);
        until("both were refused", || !one.failure().is_empty() && !two.failure().is_empty()).await;
        assert!(one.failure().starts_with("refused the connection: the directory"), "{}", one.failure());
        assert!(two.failure().starts_with("the other node refused the connection: the directory"), "{}", two.failure());
        assert!(one.told.told.borrow().is_empty());
        assert!(!two.told.told.borrow().contains(&Told::Connected(node(1))));
        one.links.set_peers(&[home(2, &two, 2)]);
        until("they are connected", || one.is_connected() && two.is_connected()).await;
    });
}

#[test]
fn nodes_of_other_groups_numbers_and_versions_do_not_talk() {
    run(async {
        let refused = async |change: &dyn Fn(&mut LinkSettings)| {
            let mut two = settings(2);
            change(&mut two);
            let [one, _] = refused(of_history(1, 1), two).await;
            one
        };
        assert!(refused(&|two| two.group = GroupId(4)).await.contains("node 2 belongs to group 4"));
        assert!(
            refused(&|two| two.identity = of_history(2, 2).identity)
                .await
                .contains("another group with the same number")
        );
        assert_eq!(
            refused(&|two| two.node = node(3)).await,
            "the connection is meant for node 2, but leads to node 3: correct the addresses of the nodes"
        );
        let later = VersionRange { oldest: 2, newest: 3 };
        for (change, subject) in [
            (&(|two: &mut LinkSettings| two.versions.protocol = later) as &dyn Fn(&mut LinkSettings), "the protocol"),
            (&|two| two.versions.log = later, "the log"),
            (&|two| two.versions.effects = later, "the effects"),
        ] {
            let failure = refused(change).await;
            assert!(failure.contains(&format!("version 2 to 3 of {subject}")), "{failure}");
        }
    });
}

#[test]
fn an_intruder_that_trusts_our_authority_is_refused_at_both_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, foreign) = (Authority::new(&folder.path().join("ours")), Authority::new(&folder.path().join("foreign")));
    run(async {
        // It trusts our authority, but its own certificate is of another one.
        let (Security::Certificates { authority, .. }, Security::Certificates { certificate, key, .. }) =
            (ours.certify("localhost"), foreign.certify("localhost"))
        else {
            panic!("both are certificates");
        };
        let intruder = Security::Certificates { certificate, key, authority };
        let (one, two) = pair(with(ours.certify("localhost"), 1), with(intruder, 2)).await;
        until("refused", || !one.failure().is_empty() && !two.failure().is_empty()).await;
        assert!(!two.is_connected() && !one.is_received_from());
    });
}

#[test]
fn a_stranger_that_shows_no_proof_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(&folder.path().join("ours"));
    let nothing = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth()
        .client_auth_cert_resolver;
    run(async {
        for security in [secret(&folder, "a"), authority.certify("localhost")] {
            let Ok(Guard::Tls { connector, .. }) = Guard::new(&security) else { panic!("it uses TLS") };
            let one = Node::start(with(security, 1)).await;
            one.set_peer(2, "localhost:1");
            let greeting =
                Greeting::of(&settings(2), settings(2).identity, node(1), Purpose::Messages, Verdict::Welcome).bytes();
            let is_answered = async |rules: ClientConfig| {
                let socket = TcpStream::connect(one.address()).await.unwrap();
                let name = ServerName::try_from("localhost").unwrap();
                let exchange = async {
                    let mut stream = TlsConnector::from(Arc::new(rules)).connect(name, socket).await?;
                    stream.write_all(&greeting).await?;
                    stream.read_exact(&mut vec![0; greeting.len()]).await
                };
                timeout(PATIENCE, exchange).await.expect("an answer or a refusal").is_ok()
            };
            let mut rules = ClientConfig::clone(connector.config());
            assert!(is_answered(rules.clone()).await);
            rules.client_auth_cert_resolver = Arc::clone(&nothing);
            assert!(!is_answered(rules).await);
        }
    });
}

#[test]
fn unusable_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(&folder.path().join("ours"));
    run(async {
        let start = async |security| {
            let started = Links::start(with(security, 1), "127.0.0.1:0", Rc::new(Recorder::default())).await;
            match started.err() {
                Some(error @ StartError::Security(_)) => error.to_string(),
                other => panic!("{other:?}"),
            }
        };
        let missing = folder.path().join("missing");
        assert!(start(Security::Secret(missing.clone())).await.starts_with(&*missing.to_string_lossy()));
        let (Security::Certificates { certificate, key, authority }, Security::Certificates { key: other, .. }) =
            (authority.certify("a"), authority.certify("b"))
        else {
            panic!("both are certificates");
        };
        let files = |certificate: &PathBuf, key: &PathBuf, authority: &PathBuf| Security::Certificates {
            certificate: certificate.clone(),
            key: key.clone(),
            authority: authority.clone(),
        };
        for (files, named) in [
            (files(&missing, &key, &authority), &missing),
            (files(&certificate, &missing, &authority), &missing),
            (files(&certificate, &key, &missing), &missing),
            (files(&certificate, &other, &authority), &certificate),
            (files(&key, &key, &authority), &key),
            (files(&certificate, &certificate, &authority), &certificate),
        ] {
            let error = start(files).await;
            assert!(error.starts_with(&*named.to_string_lossy()), "{error}");
        }
    });
}
