//! Sandboxes that may reach hosts: through the proxy, which stands in this process, to a server of the test, and to
//! nothing else (spec: sandbox, sections 2 and 17).

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use nylorun::gates::egress::Egress;
use nylorun::gates::egress::network::Network;
use nylorun_actors::model::workspace::{Tool, ToolOutcome};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::support::Spaces;
use nylorun::sandbox::choice::Kind;

/// An address of the internet, behind which the test's server stands.
const SERVER: &str = "93.184.216.34";

/// A network with a few names, and a server that answers each request with what it asked for.
pub struct Internet {
    pub egress: Egress,
    pub dialled: Arc<Mutex<Vec<SocketAddr>>>,
}

pub async fn internet() -> Internet {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).await.is_ok_and(|size| size > 0)
                {
                    head.push(byte[0]);
                }
                let head = String::from_utf8_lossy(&head).into_owned();
                let first = head.lines().next().unwrap_or_default().to_owned();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{first}",
                    first.len()
                );
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    let names = HashMap::from([
        ("good.test", SERVER),
        ("other.test", SERVER),
        ("a.wild.test", SERVER),
        ("loop.test", "127.0.0.1"),
        ("ten.test", "10.0.0.1"),
        ("metadata.test", "169.254.169.254"),
    ]);
    let lookup = move |name: String| {
        let found = names.get(name.as_str()).map(|text| vec![text.parse::<IpAddr>().unwrap()]);
        async move { found.ok_or_else(|| io::Error::other("no such name")) }.boxed()
    };
    let dialled = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&dialled);
    let connect = move |address: SocketAddr| {
        seen.lock().unwrap().push(address);
        TcpStream::connect(server).boxed()
    };
    Internet { egress: Egress::over(Network::new(Arc::new(lookup), Arc::new(connect))), dialled }
}

/// Says something to the proxy and shows the first line of its answer. Bash alone, so that it runs in any image.
fn ask(request: &str) -> String {
    format!("exec 3<>/dev/tcp/127.0.0.1/3128; printf '{request}' >&3; read -r line <&3; echo \"$line\"")
}

/// What a sandbox with hosts sees, whatever keeps it apart. Its list is `good.test`, `*.wild.test` and names of
/// addresses that are never dialled.
pub async fn hosts_of_the_list_are_reached_and_nothing_else(mut spaces: Spaces, internet: &Internet) {
    spaces.spec = json!({"network": {"preset": "none", "allow":
        ["good.test", "*.wild.test", "loop.test", "ten.test", "metadata.test"]}});
    for host in ["good.test", "A.Wild.test"] {
        let tunnel = format!(
            "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT {host}:443 HTTP/1.1\\r\\n\\r\\n' >&3; read -r line <&3; \
             echo \"$line\"; read -r line <&3; printf 'HELLO {host}\\r\\n\\r\\n' >&3; cat <&3"
        );
        let said = spaces.says("s", &tunnel).await.replace('\r', "");
        assert!(said.starts_with("HTTP/1.1 200 Connection Established\nHTTP/1.1 200 OK\n"), "{said}");
        assert!(said.ends_with(&format!("\n\nHELLO {host}")), "{said}");
    }
    let said = spaces.says("s", &ask("GET http://good.test/x HTTP/1.1\\r\\n\\r\\n")).await;
    assert_eq!(said.trim(), "HTTP/1.1 200 OK");
    let dialled: Vec<String> = internet.dialled.lock().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(dialled, [format!("{SERVER}:443"), format!("{SERVER}:443"), format!("{SERVER}:80")]);
    for (target, status) in [
        ("other.test:443", "403 Forbidden"),
        ("wild.test:443", "403 Forbidden"),
        ("127.0.0.1:443", "403 Forbidden"),
        ("169.254.169.254:80", "403 Forbidden"),
        ("good.test:22", "403 Forbidden"),
        ("loop.test:443", "403 Forbidden"),
        ("ten.test:443", "403 Forbidden"),
        ("metadata.test:80", "403 Forbidden"),
    ] {
        let said = spaces.says("s", &ask(&format!("CONNECT {target} HTTP/1.1\\r\\n\\r\\n"))).await;
        assert_eq!(said.trim(), format!("HTTP/1.1 {status}"), "{target}");
    }
    assert_eq!(internet.dialled.lock().unwrap().len(), 3, "nobody else was dialled");
    let variables = spaces.says("s", "env | grep -i proxy | sort").await;
    assert_eq!(
        variables,
        "HTTPS_PROXY=http://127.0.0.1:3128\nHTTP_PROXY=http://127.0.0.1:3128\nNO_PROXY=localhost,127.0.0.1\n\
         http_proxy=http://127.0.0.1:3128\nhttps_proxy=http://127.0.0.1:3128\nno_proxy=localhost,127.0.0.1"
    );
    // Without the proxy there is no way, neither by a name nor by an address.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    for there in [format!("127.0.0.1/{port}"), format!("{SERVER}/443"), "good.test/443".to_owned()] {
        let output = spaces.bash("s", &format!("timeout 5 bash -c 'exec 3<>/dev/tcp/{there}'")).await;
        assert_ne!(output["exitCode"], 0, "{there}: {output}");
    }
    assert!(listener.accept().is_err(), "nobody came");
    assert_eq!(spaces.says("s", "cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '").await, "lo");
    let more = "n=0; while [ $n -lt 64 ]; do eval \"exec $((n+10))<>/dev/tcp/127.0.0.1/3128\"; \
                printf 'CONNECT good.test:443 HTTP/1.1\\r\\n\\r\\n' >&$((n+10)); read -r line <&$((n+10)); \
                case $line in *200*) ;; *) echo \"$n: $line\";; esac; n=$((n+1)); done; ";
    let said =
        spaces.says("s", &format!("{more}{}", ask("CONNECT good.test:443 HTTP/1.1\\r\\n\\r\\n"))).await;
    assert_eq!(said.trim(), "HTTP/1.1 429 Too Many Requests", "64 tunnels are open, and no further one");
    // They have ended with their command.
    let said = spaces.says("s", &ask("CONNECT good.test:443 HTTP/1.1\\r\\n\\r\\n")).await;
    assert_eq!(said.trim(), "HTTP/1.1 200 Connection Established");
}

/// Two sandboxes at the same moment have a list each, and one without a list has nothing.
pub async fn each_sandbox_has_a_list_of_its_own(mut spaces: Spaces) {
    let command = format!(
        "({}); ({})",
        ask("CONNECT good.test:443 HTTP/1.1\\r\\n\\r\\n"),
        ask("CONNECT other.test:443 HTTP/1.1\\r\\n\\r\\n")
    );
    let mut calls = Vec::new();
    for (session, host) in [("a", "good.test"), ("b", "other.test")] {
        spaces.spec = json!({"network": {"preset": "none", "allow": [host]}});
        calls.push(spaces.start(session, Tool::Bash, json!({"command": command})));
    }
    let said =
        futures_util::future::join_all(calls).await.into_iter().map(|outcome| match outcome.unwrap() {
            ToolOutcome::Completed { output } => output["stdout"].as_str().unwrap().replace('\r', ""),
            ToolOutcome::Failed { code, message } => panic!("{code}: {message}"),
        });
    let (yes, no) = ("HTTP/1.1 200 Connection Established\n", "HTTP/1.1 403 Forbidden\n");
    assert_eq!(said.collect::<Vec<_>>(), [format!("{yes}{no}"), format!("{no}{yes}")]);
    spaces.spec = json!({});
    let none = "env | grep -i proxy; timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128'";
    assert_ne!(spaces.bash("c", none).await["exitCode"], 0);
    assert_eq!(spaces.bash("c", none).await["stdout"], "");
}

fn caged(internet: &Internet) -> Spaces {
    Spaces::of(Kind::Namespaces, |means| means.egress = internet.egress.clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cage_reaches_the_hosts_of_its_list_and_nothing_else() {
    let internet = internet().await;
    hosts_of_the_list_are_reached_and_nothing_else(caged(&internet), &internet).await;
    each_sandbox_has_a_list_of_its_own(caged(&internet)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ordinary_programs_find_the_way_by_themselves() {
    let internet = internet().await;
    let mut spaces = caged(&internet);
    spaces.spec = json!({"network": {"preset": "none", "allow": ["good.test"]}});
    for (program, command) in [
        (
            "python3",
            "python3 -c \"import urllib.request as u; print(u.urlopen('http://good.test/x').read().decode())\"",
        ),
        ("curl", "curl -sS http://good.test/x"),
        ("wget", "wget -q -O - http://good.test/x"),
        ("curl", "curl -sS --proxytunnel http://good.test/x"),
    ] {
        if spaces.bash("s", &format!("command -v {program}")).await["exitCode"] == 0 {
            assert_eq!(spaces.says("s", command).await, "GET /x HTTP/1.1", "{command}");
        }
    }
    // A handshake gets as far as it can with a server that speaks none.
    if spaces.bash("s", "command -v curl").await["exitCode"] == 0 {
        let output = spaces.bash("s", "curl -sv --max-time 2 https://good.test/ 2>&1").await;
        assert!(output["stdout"].as_str().unwrap().contains("200 Connection Established"), "{output}");
        let output = spaces.bash("s", "curl -sv --max-time 2 https://other.test/ 2>&1").await;
        assert!(output["stdout"].as_str().unwrap().contains("403 Forbidden"), "{output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_way_out_is_gone_with_its_command() {
    let internet = internet().await;
    let mut spaces = caged(&internet);
    spaces.spec = json!({"network": {"preset": "none", "allow": ["good.test"]}});
    let command = format!("{}; sleep 0.1", ask("CONNECT good.test:443 HTTP/1.1\\r\\n\\r\\n"));
    spaces.says("s", &command).await;
    let (sockets, tasks) = (sockets(), alive_tasks());
    for n in 0..20 {
        let timeout = if n % 5 == 0 { 0.3 } else { 60.0 };
        let command = if n % 5 == 0 { format!("{command}; sleep 60") } else { command.clone() };
        spaces.output("s", Tool::Bash, json!({"command": command, "timeout": timeout})).await;
    }
    for _ in 0..200 {
        if self::sockets() <= sockets && alive_tasks() <= tasks {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(self::sockets() <= sockets, "{} after {sockets}", self::sockets());
    assert!(alive_tasks() <= tasks, "{} after {tasks}", alive_tasks());
}

/// Sockets that this process has open.
fn sockets() -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    all.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:")))
        .count()
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[tokio::test]
async fn where_no_list_can_be_kept_and_without_one_nothing_runs_and_the_reason_is_told() {
    for (kind, network, says) in [
        (Kind::Landlock, json!({"allow": ["good.test"]}), "no list of hosts can be kept"),
        (Kind::Process, json!({"allow": ["good.test"]}), "this backend has none"),
        (Kind::Namespaces, json!({"preset": "open"}), "no list of hosts"),
    ] {
        let mut spaces = Spaces::new(kind);
        spaces.spec = json!({"network": network});
        let outcome = spaces.call("s", Tool::Bash, json!({"command": "touch ran"})).await.unwrap();
        let ToolOutcome::Failed { code, message } = outcome else { panic!("{kind:?}") };
        assert_eq!(code, "sandbox.unavailable");
        assert!(message.contains(says), "{kind:?}: {message}");
        assert!(!spaces.folder("s").join("ran").exists());
    }
}
