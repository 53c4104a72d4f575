//! The command line as a newcomer meets it, or a user with a typing error.

use std::process::Command;

/// Runs the program; returns its standard output and its standard error.
fn said(args: &[&str]) -> (String, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = env!("CARGO_BIN_EXE_tidegate");
    let output = Command::new(program).args(args).current_dir(&folder).output().expect("the program of this build");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    (text(output.stdout), text(output.stderr))
}

const SUBCOMMANDS: [&str; 9] = ["ping", "scripts", "import", "export", "backup", "restore", "check", "node", "config"];

#[test]
fn a_mistyped_subcommand_gets_a_suggestion() {
    for (args, nearest) in [
        (&["chekc", "tidegate-data"][..], "check"),
        (&["PING"], "ping"),
        (&["improt", "--follow", "redis://old:6379"], "import"),
        (&["script"], "scripts"),
    ] {
        let (_, error) = said(args);
        assert!(
            error.starts_with(&format!("there is no subcommand and no configuration file {}.", args[0])),
            "{error}"
        );
        assert!(error.contains(&format!("Did you mean `tidegate {nearest}`?")), "{args:?}: {error}");
        assert!(error.contains("`tidegate -h`"), "{args:?}: {error}");
    }
    let (_, error) = said(&["frobnicate"]);
    assert!(error.contains("no configuration file frobnicate") && !error.contains("Did you mean"), "{error}");
    assert!(said(&["help", "chekc"]).1.contains("there is no subcommand chekc. Did you mean `tidegate check`?"));
    for path in ["./chekc", "redis.conf"] {
        let (_, error) = said(&[path]);
        assert_eq!(error, format!("can't open config file '{path}': No such file or directory\n"));
    }
    let (_, error) = said(&["scripts", "gate_aquire"]);
    assert!(error.contains("Did you mean gate_acquire?"), "{error}");
}

#[test]
fn the_short_help_fits_a_page_and_the_long_help_is_complete() {
    let ((short, _), (long, _)) = (said(&["-h"]), said(&["--help"]));
    assert!(short.lines().count() <= 50, "{} lines: {short}", short.lines().count());
    assert!(short.lines().all(|line| line.chars().count() <= 100), "{short}");
    for part in SUBCOMMANDS.iter().chain(&["Usage: tidegate", "--port <N>", "--dir <", "tidegate --help"]) {
        assert!(short.contains(part) && long.contains(part.trim_start_matches("tidegate ")), "{part}: {short}");
    }
    let parameters = |page: &str| page.lines().filter(|line| line.trim_start().starts_with("--")).count();
    assert!((10..=15).contains(&parameters(&short)), "{short}");
    for parameter in tidegate::config::PARAMETERS {
        assert!(long.contains(&format!("--{} ", parameter.name)), "{}", parameter.name);
    }
    assert_eq!(said(&["help"]).0, long);
}

#[test]
fn the_short_help_of_a_subcommand_omits_tls_options() {
    for name in ["import", "export"] {
        let ((short, _), (long, _)) = (said(&[name, "-h"]), said(&[name, "--help"]));
        assert!(!short.contains("--cacert") && long.contains("--cacert <FILE>"), "{short}");
        assert!(short.contains("--help"), "{short}");
        assert!(short.lines().count() + 12 < long.lines().count(), "{short}");
    }
    assert!(said(&["ping", "--help"]).0.contains("--cacert <FILE>"), "its -h is the host");
}

#[test]
fn packages_get_a_manual_and_completions_with_every_parameter() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_str().expect("plain text");
    for kind in ["man", "completions"] {
        assert_eq!(said(&["generate", kind, path]), (String::new(), String::new()));
    }
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    // A manual writes hyphens as `\-`.
    let manual = read("tidegate.1").replace("\\-", "-");
    let completions = ["tidegate.bash", "tidegate.fish", "_tidegate"].map(read);
    for parameter in tidegate::config::PARAMETERS {
        assert!(manual.contains(&format!("--{}\\fR", parameter.name)), "{}", parameter.name);
        assert!(completions.iter().all(|text| text.contains(parameter.name)), "{}", parameter.name);
    }
    for name in SUBCOMMANDS {
        assert!(read(&format!("tidegate-{name}.1")).starts_with(".ie"), "{name}");
    }
    assert!(!manual.contains("generate") && !completions[0].contains("generate"), "only for packages");
    let missing = folder.path().join("missing");
    assert!(said(&["generate", "man", missing.to_str().expect("plain text")]).1.contains("No such file"));
}

#[test]
fn a_container_may_be_started_by_the_name_of_redis() {
    assert_eq!(said(&["redis-server", "--version"]), said(&["--version"]));
    let (_, error) = said(&["redis-server", "./redis.conf"]);
    assert_eq!(error, "can't open config file './redis.conf': No such file or directory\n");
}

#[test]
fn a_configuration_is_checked_without_a_start() {
    let good = "a server can be started with this configuration\n";
    assert_eq!(said(&["config", "check"]), (good.to_owned(), String::new()));
    assert_eq!(said(&["config", "check", "--port", "0", "--unixsocket", "/tmp/x"]).0, good);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("a.conf");
    let path = file.to_str().expect("a path of plain text");
    let with = |text: &str, more: &[&str]| {
        std::fs::write(&file, text).expect("a file");
        said(&[&["config", "check", path][..], more].concat())
    };
    assert_eq!(with("port 7000\nmaxmemory 1gb\n", &[]).0, good);
    let (told, _) = with("port 7000\nhash-max-ziplist-entries 5\n", &[]);
    assert!(told.ends_with(good), "{told}");
    for (text, more, error) in [
        ("prot 7000\nmaxmemory lots\n", &[][..], "Did you mean port?"),
        ("maxmemory lots\n", &[], "maxmemory lots"),
        ("port 7000\n", &["--port", "0"], "nothing to listen on"),
        ("user alice on >secret +nosuchcommand\n", &[], "nosuchcommand"),
        (
            "tls-port 7001\ntls-auth-clients no\ntls-cert-file /nowhere.crt\ntls-key-file /nowhere.key\n",
            &[],
            "/nowhere.key",
        ),
        ("node-id 1\n", &[], "`nodes` names no group"),
        ("node-id 1\nnodes 1=127.0.0.1:7000@17000\nnode-secret-file /nowhere.secret\n", &[], "/nowhere.secret"),
        ("", &["--help"], "`tidegate config check --help`"),
    ] {
        let (told, refused) = with(text, more);
        assert!(told.is_empty() && refused.contains(error), "{text}{more:?}: {told}{refused}");
    }
}

#[test]
fn a_printed_configuration_starts_the_same_server() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("a.conf");
    let path = file.to_str().expect("a path of plain text");
    std::fs::write(&file, "dir /\nport 7000\nsave 60 1\nbind 127.0.0.1 ::1\nrequirepass hush\n").expect("a file");
    let (first, error) = said(&["config", "print", path, "--maxmemory", "2gb"]);
    assert!(error.is_empty(), "{error}");
    for line in ["port 7000", "save 60 1", "maxmemory 2147483648", "# requirepass is set, and not shown", "hz 10"] {
        assert!(first.lines().any(|own| own == line), "{line}: {first}");
    }
    assert!(!first.contains("hush"), "{first}");
    std::fs::write(&file, &first).expect("a file");
    let (second, error) = said(&["config", "print", path]);
    assert_eq!(second, first.replace("# requirepass is set, and not shown\n", ""), "{error}");
}

#[test]
fn ping_waits_for_a_server_that_is_being_started() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it is bound").port();
    let (port, wait) = (port.to_string(), ["ping", "-p"]);
    assert!(said(&[&wait[..], &[&port, "--wait", "200ms"]].concat()).1.contains("no answer"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut server = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["--port", &port, "--save", "", "--logfile", "log"])
        .current_dir(&folder)
        .spawn()
        .expect("the program of this build");
    let pong = said(&[&wait[..], &[&port, "--wait", "1m"]].concat());
    let (ended, gone) = (server.kill(), server.wait());
    assert_eq!(pong, ("PONG\n".to_owned(), String::new()));
    ended.and(gone).expect("the server ran");
    let (_, error) = said(&["ping", "--wait", "soon"]);
    assert!(error.contains("invalid value 'soon' for '--wait <TIME>'"), "{error}");
}
