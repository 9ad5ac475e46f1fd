//! What a Runtime that is killed with -9 in the middle of commands leaves, whatever keeps them apart: no process at once, and
//! no control group, mount, container, network or folder once the next one has been there. And what commands see of the
//! Runtime that runs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;
use sha2::Digest as _;

use super::common::{Options, Server};
use super::dockerd::{Dockerd, IMAGE};
use super::support::{Box, bash, groups_of, marker, processes, until};

/// Commands at a time when it is killed.
const COMMANDS: usize = 5;

fn options(backend: &str, docker: Option<&Dockerd>) -> Options {
    let options = Options::default().args(&["--sandbox", backend]);
    match docker {
        None => options,
        Some(docker) => options
            .env("DOCKER_HOST", &format!("unix://{}/docker.sock", docker.dir().display()))
            .env("NYLORUN_SANDBOX_IMAGE", IMAGE),
    }
}

/// Folders of control groups of a home's workspaces, whichever the controller.
fn bases(home: &Path) -> Vec<PathBuf> {
    let root = fs::canonicalize(home.join("sandboxes")).unwrap();
    let name = hex::encode(&sha2::Sha256::digest(root.as_os_str().as_encoded_bytes())[..8]);
    let (mut found, mut next) = (Vec::new(), vec![(PathBuf::from("/sys/fs/cgroup"), 0)]);
    while let Some((folder, depth)) = next.pop() {
        let below = fs::read_dir(folder).into_iter().flatten().flatten();
        for path in
            below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
        {
            if path.ends_with(&name) {
                found.push(path);
            } else if depth < 7 {
                next.push((path, depth + 1));
            }
        }
    }
    found
}

fn containers(docker: Option<&Dockerd>, home: &Path) -> Vec<String> {
    let Some(docker) = docker else { return Vec::new() };
    let label = format!("label=nylorun.instance={}", home.join("sandboxes").display());
    let all = docker.docker(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &label]);
    all.lines().map(str::to_owned).collect()
}

fn mounts(of: &Path) -> usize {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    mounts.lines().filter(|line| line.contains(of.to_str().unwrap())).count()
}

fn a_runtime_that_is_killed_in_commands_leaves_nothing(backend: &str, docker: Option<&Dockerd>) {
    let mut it = Box::of(Server::start_with(options(backend, docker)));
    let (home, killed) = (it.server.home().to_owned(), it.server.pid());
    // What is read below is the next one's.
    super::serve::until_logged(&it.server, &["sandboxes are served", "works here"]);
    let networks = || docker.map(|docker| docker.docker(&["network", "ls", "--quiet"]));
    let before = networks();
    for round in 0..2 {
        let time = marker();
        let script = format!(
            "echo kept > file; mkdir -p a; (setsid setsid sleep {time} >/dev/null 2>&1 &); sleep {time}"
        );
        it.agent(&format!("slow{round}"), json!({"steps": [bash(&script), {"text": "done"}]}));
        let sessions: Vec<String> = (0..COMMANDS).map(|n| format!("s{round}-{n}")).collect();
        for session in &sessions {
            it.ok("PUT", &format!("/v1/sandboxes/{session}"), json!({"requestId": "r"}));
            it.open(session, &format!("slow{round}"), json!({"id": session}));
            it.say(session, "go");
        }
        let sleeps = || processes(&time).iter().filter(|pid| name(**pid) == "sleep").count();
        until("commands in all of them", || (sleeps() == 2 * COMMANDS).then_some(()));
        let ids = containers(docker, &home);
        assert_eq!(ids.len(), docker.map_or(0, |_| COMMANDS));
        let pid = it.server.pid();
        it.server.kill9();
        let began = Instant::now();
        if docker.is_none() {
            // Nobody is there any more to end them but their keepers.
            until("the end of all of them", || processes(&time).is_empty().then_some(()));
            until("the end of the helpers", || helpers(pid).is_empty().then_some(()));
            assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
        }
        it.server.restart();
        super::serve::until_logged(&it.server, &["sandboxes are served", "works here"]);
        until("the end of what was left", || {
            (processes(&time).is_empty() && containers(docker, &home).is_empty()).then_some(())
        });
        assert_eq!(groups_of(pid), Vec::<PathBuf>::new());
        for id in &ids {
            assert_eq!(processes(id), Vec::<u32>::new(), "{id}");
            assert!(!fs::read_to_string("/proc/mounts").unwrap().contains(id), "{id}");
        }
        let probes = fs::read_dir(home.join("sandboxes")).unwrap().flatten();
        let left: Vec<_> = probes
            .map(|entry| entry.file_name())
            .filter(|name| name.to_string_lossy().contains("probe"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        for session in &sessions {
            until("the turn is uncertain", || (it.status(session) == "uncertain").then_some(()));
            let effects = it.get(&format!("/v1/sessions/{session}/effects?status=uncertain"));
            let id =
                effects["effects"][0]["effectId"].as_str().unwrap().replace(':', "%3A").replace('/', "%2F");
            let body = json!({"requestId": "r", "idempotencyKey": "d", "resolution": "failed",
                "error": {"code": "sandbox.error", "message": "cut by a crash"}});
            it.ok("POST", &format!("/v1/sessions/{session}/effects/{id}/resolve"), body);
            it.until(session, "completed");
            // What a command has made is there, and the workspace is used again.
            let (_, seen) = it.tool(session, "bash", json!({"command": "cat file"}));
            assert_eq!(seen["output"]["stdout"], "kept\n", "{seen}");
            assert!(it.sandbox_folder(session).exists());
            assert_eq!(it.send("DELETE", &format!("/v1/sandboxes/{session}"), None).0, 200);
            until("the folder goes", || (!it.sandbox_folder(session).exists()).then_some(()));
        }
    }
    assert_ne!(it.server.pid(), killed);
    assert!(it.server.terminate().success());
    assert_eq!((bases(&home), containers(docker, &home), mounts(&home)), (Vec::new(), Vec::new(), 0));
    assert_eq!(networks(), before);
    assert_eq!(
        fs::read_dir(home.join("sandboxes")).unwrap().flatten().filter(|entry| entry.path().is_dir()).count(),
        0
    );
}

fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

/// Helpers that a process has started and that are still there.
fn helpers(of: u32) -> Vec<u32> {
    processes("__sandbox")
        .into_iter()
        .filter(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status
                .lines()
                .any(|line| line.strip_prefix("PPid:").is_some_and(|parent| parent.trim() == of.to_string()))
        })
        .collect()
}

/// A command looks for the Runtime that runs it: its home, database, keys, environment, memory, ports.
fn the_runtime_itself_is_out_of_reach(backend: &str, docker: Option<&Dockerd>) {
    let secret = format!("secret-{}", marker());
    let it = Box::of(Server::start_with(options(backend, docker).env("SECRET_OF_THE_RUNTIME", &secret)));
    it.agent("plain", json!({"steps": [{"text": "hi"}]}));
    it.open("s", "plain", json!({}));
    it.open("other", "plain", json!({}));
    it.tool("other", "bash", json!({"command": "echo theirs > file"}));
    let (home, pid) = (it.server.home().display().to_string(), it.server.pid());
    let port = it.server.url.rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
    let files: Vec<String> =
        fs::read_dir(&home).unwrap().flatten().map(|entry| entry.path().display().to_string()).collect();
    assert!(files.iter().any(|file| file.ends_with("nylorun.db")), "{files:?}");
    let others = it.folder("other").display().to_string();
    let proc = ["environ", "cmdline", "mem", "maps", "fd", "root", "cwd", "exe"]
        .map(|name| format!("/proc/{pid}/{name}"));
    let mut looks: Vec<String> = files.into_iter().chain(proc).chain([home, others]).map(|path| {
        format!("if [ -d {path}/ ]; then [ -n \"$(ls -A {path}/)\" ]; else [ -n \"$(head -c 9 {path} | tr -d '\\0')\" ]; fi")
    }).collect();
    for address in ["127.0.0.1", "0.0.0.0", "169.254.169.254", "10.0.2.2", "172.17.0.1"] {
        looks.push(format!("timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/{port}'"));
        looks.push(format!("timeout 2 bash -c 'exec 3<>/dev/tcp/{address}/80'"));
    }
    looks.extend([
        format!("kill -0 {pid}"),
        format!("kill -9 {pid}"),
        "kill -9 -1; sleep 0.1; false".to_owned(),
    ]);
    for look in looks {
        let (status, answer) = it.tool("s", "bash", json!({"command": look, "timeout": 10}));
        let output = &answer["output"];
        assert!(
            status == 200 && output["exitCode"].is_number() && output["exitCode"] != 0,
            "{look}: {answer}"
        );
    }
    let (_, all) = it.tool(
        "s",
        "bash",
        json!({"command": "env; cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' ' '; true"}),
    );
    assert!(!all.to_string().contains(&secret) && !all.to_string().contains("serve --listen"), "{all}");
    assert_eq!(it.send("GET", "/v1/tenant", None).0, 200, "it is well");
}

macro_rules! for_each_backend {
    ($($name:ident)*) => {
        $(mod $name {
            #[test]
            fn a_runtime_that_is_killed_in_commands_leaves_nothing() {
                super::a_runtime_that_is_killed_in_commands_leaves_nothing(stringify!($name), None);
            }
        })*
    };
}

for_each_backend! { namespaces landlock process }

#[test]
fn the_runtime_is_out_of_reach_in_namespaces() {
    the_runtime_itself_is_out_of_reach("namespaces", None);
}

#[test]
fn the_runtime_is_out_of_reach_with_landlock() {
    the_runtime_itself_is_out_of_reach("landlock", None);
}

/// In a module of this name, so that a machine without a daemon leaves them out.
mod docker {
    use super::Dockerd;

    #[test]
    fn a_runtime_that_is_killed_in_commands_leaves_nothing() {
        if let Some(docker) = Dockerd::get() {
            super::a_runtime_that_is_killed_in_commands_leaves_nothing("docker", Some(docker));
        }
    }

    #[test]
    fn the_runtime_is_out_of_reach_in_a_container() {
        if let Some(docker) = Dockerd::get() {
            super::the_runtime_itself_is_out_of_reach("docker", Some(docker));
        }
    }
}
