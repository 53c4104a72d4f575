//! Three etcd as one group, and a load of puts on it. The load is a program of its own, in Go: etcd's protocol is gRPC,
//! and its own client knows it best.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::peer::{cpu_seconds, free_ports};

/// A running group.
pub(crate) struct Etcd {
    nodes: Vec<Child>,
    endpoints: String,
    /// The program that makes the load.
    load: PathBuf,
    /// The data of the nodes and the program, removed with the group.
    _root: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

impl Etcd {
    /// Starts a group, or says why there can be none.
    pub(crate) fn start() -> Result<Etcd, String> {
        let root = tempfile::tempdir().map_err(|error| error.to_string())?;
        let load = build_load(root.path())?;
        let ports: [u16; 6] = free_ports();
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (of_clients, of_nodes) = ports.split_at(3);
        let homes: Vec<String> = (0..3).map(|place| format!("node-{place}={}", url(of_nodes[place]))).collect();
        let mut etcd = Etcd {
            nodes: Vec::new(),
            endpoints: of_clients.iter().map(|port| url(*port)).collect::<Vec<_>>().join(","),
            load,
            _root: root,
        };
        for place in 0..3 {
            let name = format!("node-{place}");
            let (clients, nodes) = (url(of_clients[place]), url(of_nodes[place]));
            let child = Command::new("etcd")
                .args(["--name", &name, "--log-level", "error", "--data-dir"])
                .arg(etcd._root.path().join(&name))
                .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
                .args(["--listen-peer-urls", &nodes, "--initial-advertise-peer-urls", &nodes])
                .args(["--initial-cluster", &homes.join(","), "--initial-cluster-state", "new"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            etcd.nodes.push(child.map_err(|error| format!("etcd does not start: {error}"))?);
        }
        Ok(etcd)
    }

    /// The name and version, as in "etcd 3.4.23".
    pub(crate) fn version(&self) -> String {
        let output = Command::new("etcd").arg("--version").output().map(|output| output.stdout).unwrap_or_default();
        let text = String::from_utf8_lossy(&output);
        let version = text.lines().find_map(|line| line.strip_prefix("etcd Version: ")).unwrap_or("of unknown version");
        format!("etcd {version}")
    }

    /// Puts values for a while. Returns the puts per second, and the CPU time of a put in us: of the leader, and of the
    /// busier follower.
    pub(crate) fn measure(&self, connections: usize, depth: usize, value_len: usize, length: Duration) -> [f64; 3] {
        let cpu = || self.nodes.iter().map(|node| cpu_seconds(node.id())).collect::<Vec<f64>>();
        let before = cpu();
        let output = Command::new(&self.load)
            .arg(&self.endpoints)
            .args([connections, depth, value_len, length.as_millis() as usize].map(|number| number.to_string()))
            .stderr(Stdio::inherit())
            .output()
            .expect("the program was built");
        let mut taken: Vec<f64> = cpu().iter().zip(before).map(|(now, before)| now - before).collect();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let numbers: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [leader, puts, seconds] = numbers[..] else { panic!("the load on etcd has failed") };
        let us = |seconds: f64| seconds * 1e6 / puts;
        let leader = us(taken.remove(leader as usize));
        [puts / seconds, leader, us(taken.into_iter().fold(0.0, f64::max))]
    }
}

/// Builds the program that makes the load. Go gets etcd's client from its registry.
fn build_load(folder: &Path) -> Result<PathBuf, String> {
    Command::new("etcd").arg("--version").output().map_err(|error| format!("etcd does not start: {error}"))?;
    let load = folder.join("load");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/etcd/load");
    let status = Command::new("go").args(["build", "-o"]).arg(&load).arg(".").current_dir(source).status();
    match status {
        Ok(status) if status.success() => Ok(load),
        Ok(_) => Err("go can't build its load".to_owned()),
        Err(error) => Err(format!("go does not start: {error}")),
    }
}
