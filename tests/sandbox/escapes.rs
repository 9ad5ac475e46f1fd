//! What a command in a sandbox must not reach: files, processes, environment, network, kernel, and more than its share.

use std::io::Read as _;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use nylorun::sandbox::choice::Kind;
use nylorun_actors::model::workspace::{Tool, ToolOutcome};
use serde_json::json;

use super::support::Spaces;

fn spaces() -> Spaces {
    Spaces::new(Kind::Namespaces)
}

#[tokio::test]
async fn the_hosts_files_are_not_there() {
    let spaces = spaces();
    let secret = spaces.dir.path().join("secret");
    std::fs::write(&secret, "the host's secret").unwrap();
    let (secret, sandboxes) = (secret.display().to_string(), spaces.dir.path().join("sandboxes"));
    for path in [
        secret.as_str(),
        sandboxes.to_str().unwrap(),
        "/etc/shadow",
        "/root/.bashrc",
        "/home/user",
        "/sys/kernel",
        "/var/log",
        "/boot",
    ] {
        let output = spaces.bash("s", &format!("ls -la {path} && cat {path}")).await;
        assert_ne!(output["exitCode"], 0, "{path}: {output}");
        let read = spaces.call("s", Tool::Read, json!({"path": path})).await.unwrap();
        assert!(matches!(read, ToolOutcome::Failed { .. }), "{path}: {read:?}");
    }
    assert_eq!(spaces.says("s", "ls -A /root /home /run").await, "/home:\n\n/root:\n\n/run:");
    // Nothing of the system can be changed.
    for command in [
        "touch /usr/x",
        "touch /etc/x",
        "touch /x",
        "rm -f /bin/sh",
        "mkdir /dev/x",
        "echo 1 > /proc/sys/kernel/panic",
    ] {
        assert_ne!(spaces.bash("s", command).await["exitCode"], 0, "{command}");
    }
}

#[tokio::test]
async fn a_link_out_of_the_workspace_leads_nowhere() {
    let spaces = spaces();
    spaces.says("s", "true").await;
    let secret = spaces.dir.path().join("secret");
    std::fs::write(&secret, "the host's secret").unwrap();
    symlink(&secret, spaces.folder("s").join("link")).unwrap();
    symlink(spaces.dir.path(), spaces.folder("s").join("dir")).unwrap();
    for (tool, input) in [
        (Tool::Read, json!({"path": "link"})),
        (Tool::Read, json!({"path": "dir/secret"})),
        (Tool::Edit, json!({"path": "link", "old_string": "host", "new_string": "x"})),
        (Tool::Grep, json!({"pattern": "secret", "path": "dir"})),
    ] {
        let outcome = spaces.call("s", tool, input).await.unwrap();
        assert!(matches!(outcome, ToolOutcome::Failed { .. }), "{outcome:?}");
    }
    let _ = spaces.call("s", Tool::Write, json!({"path": "link", "content": "overwritten"})).await.unwrap();
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "the host's secret");
    // No descriptor of the host is open in there, and no root but the sandbox's is above its own.
    assert_eq!(spaces.says("s", "ls /proc/self/fd | tr '\\n' ' '").await, "0 1 2 3");
    assert_eq!(spaces.says("s", "cd /; cd ../../..; ls -d secret sandboxes 2>/dev/null; pwd").await, "/");
    let of_init = spaces.says("s", "ls -A /proc/1/root /proc/1/cwd 2>/dev/null; true").await;
    assert!(!of_init.contains("sandboxes") && !of_init.contains("secret"), "{of_init}");
}

#[tokio::test]
async fn the_hosts_processes_are_neither_seen_nor_killed() {
    let spaces = spaces();
    let own = std::process::id();
    let seen = spaces.says("s", "ls /proc | grep -E '^[0-9]+$' | wc -l").await;
    assert!(seen.parse::<u32>().unwrap() < 12, "{seen} processes");
    let mut sleeper = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    for pid in [own, sleeper.id()] {
        assert_ne!(spaces.bash("s", &format!("kill -9 {pid}")).await["exitCode"], 0);
    }
    spaces.bash("s", "kill -9 -1").await;
    assert!(sleeper.try_wait().unwrap().is_none(), "the host's process lives");
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(
        spaces.says("s", "id -u; hostname; cat /proc/self/status | grep CapEff").await,
        "1000\nsandbox\nCapEff:\t0000000000000000"
    );
    assert!(!spaces.says("s", "cat /proc/1/cmdline /proc/1/environ | tr '\\0' ' '").await.contains("CARGO"));
}

#[tokio::test]
async fn there_is_no_network_but_its_own_loopback() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let spaces = spaces();
    for host in ["127.0.0.1", "10.0.0.1", "169.254.169.254"] {
        let output = spaces.bash("s", &format!("timeout 5 bash -c 'exec 3<>/dev/tcp/{host}/{port}'")).await;
        assert_ne!(output["exitCode"], 0, "{host}");
    }
    assert!(listener.accept().is_err(), "nobody came");
    let devices = spaces.says("s", "cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '").await;
    assert_eq!(devices, "lo");
    let python = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); c = socket.create_connection(s.getsockname()); print('ok')";
    let output = spaces
        .bash("s", &format!("command -v python3 >/dev/null || {{ echo ok; exit; }}; python3 -c \"{python}\""))
        .await;
    assert_eq!(output["stdout"], "ok\n", "{output}");
}

#[tokio::test]
async fn ways_into_the_kernel_are_refused() {
    let spaces = spaces();
    for command in [
        "mount -t tmpfs x /workspace",
        "unshare -U true",
        "unshare -r true",
        "nsenter -t 1 -m true",
        "chroot / true",
        "dmesg",
        "swapon /workspace",
    ] {
        assert_ne!(spaces.bash("s", command).await["exitCode"], 0, "{command}");
    }
    assert!(
        spaces
            .says("s", "grep -E 'NoNewPrivs|Seccomp:' /proc/self/status | tr -d '\\t\\n'")
            .await
            .starts_with("NoNewPrivs:1Seccomp:2")
    );
    let python = "import socket; socket.socket(40, 1)";
    let output =
        spaces.bash("s", &format!("command -v python3 >/dev/null || exit 1; python3 -c \"{python}\"")).await;
    assert_ne!(output["exitCode"], 0, "the host of a virtual machine is not reached either");
}

#[tokio::test]
async fn a_fork_bomb_is_bounded_and_ends_with_its_time() {
    let spaces = spaces();
    let began = Instant::now();
    let bomb = json!({"command": "b() { b | b & }; b; sleep 60", "timeout": 3});
    let output = spaces.output("s", Tool::Bash, bomb).await;
    assert_eq!(output["timedOut"], true, "{output}");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    // Everything of it is gone, and the workspace goes on.
    assert_eq!(spaces.says("s", "echo fine").await, "fine");
    let most = "for n in $(seq 700); do sleep 20 & done 2>err; jobs -r | wc -l";
    let running: u32 = spaces.bash("s", most).await["stdout"].as_str().unwrap().trim().parse().unwrap_or(0);
    assert!(running < 520, "{running} at once");
}

#[tokio::test]
async fn memory_files_and_cpus_are_limited() {
    let mut spaces = spaces();
    spaces.spec = json!({"resources": {"cpus": 1, "memory": "256MiB"}});
    let python = spaces.bash("s", "command -v python3").await["exitCode"] == 0;
    if python {
        let output = spaces.bash("s", "python3 -c \"x = bytearray(600 * 1024 * 1024)\"").await;
        assert_ne!(output["exitCode"], 0, "{output}");
        assert!(output["stderr"].as_str().unwrap().contains("MemoryError"), "{output}");
    }
    assert_eq!(spaces.says("s", "nproc").await, "1");
    let output = spaces.bash("s", "truncate -s 5G big").await;
    assert_ne!(output["exitCode"], 0, "{output}");
}

#[tokio::test]
async fn a_sandbox_of_root_is_nobody_on_the_host() {
    let spaces = spaces();
    spaces.says("s", "echo x > file; chmod 4755 file; sleep 0").await;
    use std::os::unix::fs::MetadataExt as _;
    let owner = std::fs::metadata(spaces.folder("s").join("file")).unwrap().uid();
    if nix::unistd::Uid::effective().is_root() {
        assert_eq!(owner, nylorun::sandbox::backend::HOST_UID);
    }
    let mut text = String::new();
    std::fs::File::open(spaces.folder("s").join("file")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "x\n");
}
