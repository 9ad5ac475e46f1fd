//! The backend of containers, with a real daemon: what a workspace's container is, that nothing is left of it, and what is
//! said where it cannot be had (spec: sandbox, sections 11 and 12).

use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nylorun::sandbox::backend::HOST_UID;
use nylorun::sandbox::choice::Kind;
use nylorun_actors::model::Json;
use nylorun_actors::model::workspace::{Removal, Tool, ToolOutcome, WorkspaceState, session_key};
use nylorun_actors::ports::workspaces::WorkspaceManager as _;
use serde_json::json;
use tempfile::TempDir;

use super::dockerd::Dockerd;
use super::egress::{self, internet};
use super::support::{Spaces, TENANT, manager_of};

fn spaces(_: &Dockerd) -> Spaces {
    Spaces::new(Kind::Docker)
}

fn key(session: &str) -> String {
    session_key(&TENANT.into(), &session.into())
}

/// Containers of a folder of workspaces.
fn of_instance(docker: &Dockerd, dir: &TempDir) -> Vec<String> {
    let label = format!("label=nylorun.instance={}", dir.path().join("sandboxes").display());
    let all = docker.docker(&["ps", "--all", "--quiet", "--no-trunc", "--filter", &label]);
    all.lines().map(str::to_owned).collect()
}

/// The user and group of commands.
fn who() -> (u32, u32) {
    use nix::unistd::{Uid, getegid, geteuid};
    if Uid::effective().is_root() { (HOST_UID, HOST_UID) } else { (geteuid().as_raw(), getegid().as_raw()) }
}

fn inspect(docker: &Dockerd, id: &str) -> Json {
    serde_json::from_str::<Json>(&docker.docker(&["inspect", id])).unwrap()[0].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_has_one_container_until_it_stops_and_its_files_outlive_it() {
    let Some(docker) = Dockerd::get() else { return };
    let mut spaces = spaces(docker);
    spaces.spec = json!({"idle": "1m"});
    spaces.says("s", "echo kept > file; echo gone > /tmp/t; echo out > /workspace/out").await;
    let first = of_instance(docker, &spaces.dir);
    assert_eq!(spaces.says("s", "cat file /tmp/t").await, "kept\ngone");
    spaces.says("other", "true").await;
    assert_eq!((first.len(), of_instance(docker, &spaces.dir).len()), (1, 2), "one for each, and it is kept");
    assert!(of_instance(docker, &spaces.dir).contains(&first[0]));
    let labels = inspect(docker, &first[0])["Config"]["Labels"].clone();
    assert_eq!(labels["nylorun.key"], key("s"));
    // The host sees the files, and the tools that do not ask the container see what its commands have made.
    assert_eq!(std::fs::read_to_string(spaces.folder("s").join("out")).unwrap(), "out\n");
    assert_eq!(spaces.output("s", Tool::Read, json!({"path": "/tmp/t"})).await, "1\tgone");
    let report = spaces.manager.report().await;
    assert_eq!(
        (report.backend.as_deref(), report.isolation.as_deref()),
        (Some("virtual"), Some("container"))
    );
    let probe = report.probes[0].clone();
    assert!(
        probe
            .version
            .as_ref()
            .is_some_and(|version| version.contains("API 1.") && version.contains("nylorun-test:1")),
        "{probe:?}"
    );
    // Idle: the containers go, the files stay.
    let later = {
        use nylorun_actors::ports::Clock as _;
        nylorun_actors::ports::clock::SystemClock.now().0 as f64 / 1_000.0 + 61_000.0
    };
    let swept = spaces.manager.sweep(Some(later), spaces.heard.clone()).await.unwrap();
    assert!(swept.iter().all(|record| record.state == WorkspaceState::Stopped));
    assert_eq!(of_instance(docker, &spaces.dir), [""; 0]);
    assert_eq!(spaces.says("s", "cat file; ls /tmp").await, "kept");
    spaces.manager.remove(Removal::keys(vec![key("s")])).await.unwrap();
    assert_eq!(of_instance(docker, &spaces.dir), [""; 0]);
    assert!(!spaces.folder("s").exists());
    spaces.says("s", "test ! -e file").await;
    spaces.manager.close(None).await;
    assert_eq!(of_instance(docker, &spaces.dir), [""; 0], "a manager that is closed leaves none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_is_locked_down() {
    let Some(docker) = Dockerd::get() else { return };
    let mut spaces = spaces(docker);
    spaces.spec = json!({"resources": {"cpus": 1, "memory": "256MiB"}});
    spaces.says("s", "true").await;
    let seen = inspect(docker, &of_instance(docker, &spaces.dir)[0]);
    let host = &seen["HostConfig"];
    for (name, value) in [
        ("NetworkMode", json!("none")),
        ("ReadonlyRootfs", json!(true)),
        ("Privileged", json!(false)),
        ("CapDrop", json!(["ALL"])),
        ("CapAdd", json!(null)),
        ("Init", json!(true)),
        ("IpcMode", json!("private")),
        ("PidMode", json!("")),
        ("UTSMode", json!("")),
        ("Memory", json!(256 << 20)),
        ("MemorySwap", json!(256 << 20)),
        ("NanoCpus", json!(1_000_000_000)),
        ("PidsLimit", json!(514)),
        ("CgroupnsMode", json!("private")),
        ("UsernsMode", json!("")),
        ("Devices", json!(null)),
        ("DeviceCgroupRules", json!(null)),
        ("GroupAdd", json!(null)),
        ("Binds", json!(null)),
        ("VolumesFrom", json!(null)),
        ("PortBindings", json!(null)),
        ("PublishAllPorts", json!(false)),
        ("AutoRemove", json!(true)),
    ] {
        assert!(
            host[name] == value || (value.is_null() && host[name].as_array().is_some_and(Vec::is_empty)),
            "{name}: {}",
            host[name]
        );
    }
    assert_eq!(
        (&host["LogConfig"]["Type"], &host["RestartPolicy"]["MaximumRetryCount"]),
        (&json!("none"), &json!(0))
    );
    assert!(["", "no"].contains(&host["RestartPolicy"]["Name"].as_str().unwrap()), "{host}");
    for path in ["/proc/kcore", "/proc/keys", "/proc/sched_debug", "/sys/firmware", "/sys/kernel"] {
        assert!(host["MaskedPaths"].as_array().unwrap().contains(&json!(path)), "{path}");
    }
    for path in ["/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"] {
        assert!(host["ReadonlyPaths"].as_array().unwrap().contains(&json!(path)), "{path}");
    }
    let security: Vec<&str> =
        host["SecurityOpt"].as_array().unwrap().iter().filter_map(Json::as_str).collect();
    let [plain, filter] = security[..] else { panic!("{security:?}") };
    let filter: Json = serde_json::from_str(filter.strip_prefix("seccomp=").unwrap()).unwrap();
    assert_eq!((plain, &filter["defaultAction"]), ("no-new-privileges", &json!("SCMP_ACT_ERRNO")));
    let mounts: Vec<&str> = seen["Mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| mount["Destination"].as_str().unwrap())
        .collect();
    assert_eq!(mounts.len(), 2, "{mounts:?}");
    let said =
        spaces.says("s", "id -u; id -G; grep -E 'Cap|NoNew|Seccomp:' /proc/self/status | tr -d '\\t'").await;
    let who = who().0;
    assert_eq!(
        said,
        format!("{who}\n{who}\n")
            + "CapInh:0000000000000000\nCapPrm:0000000000000000\nCapEff:0000000000000000\n\
         CapBnd:0000000000000000\nCapAmb:0000000000000000\nNoNewPrivs:1\nSeccomp:2"
    );
    assert_eq!(spaces.says("s", "ulimit -c; ulimit -n").await, "0\n4096");
    for command in
        ["touch /x", "touch /etc/x", "touch /bin/x", "mkdir /dev/x", "kill -9 1", "mknod /tmp/n c 1 3"]
    {
        assert_ne!(spaces.bash("s", command).await["exitCode"], 0, "{command}");
    }
    assert_eq!(spaces.says("s", "grep -v '^#' /etc/resolv.conf").await, "nameserver 127.0.0.1");
    let memory = spaces.bash("s", "head -c 600M /dev/zero | tail -c 600M | wc -c").await;
    assert_ne!(memory["stdout"], "629145600\n", "{memory}");
    assert_eq!(spaces.says("s", "echo fine").await, "fine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_image_declares_opens_nothing() {
    let Some(docker) = Dockerd::get() else { return };
    let mut spaces = spaces(docker);
    // A healthcheck would run beside commands, a volume would be a folder of the daemon's that nobody counts.
    let image = |name: &str, volume: &str| {
        let id = docker.docker(&["create", super::dockerd::IMAGE, "true"]);
        docker.docker(&[
            "commit",
            "--change",
            "HEALTHCHECK --interval=1s CMD touch /workspace/checked",
            "--change",
            &format!("VOLUME {volume}"),
            "--change",
            "LABEL nylorun.owner=nobody",
            "--change",
            "USER 0",
            &id,
            name,
        ]);
        docker.docker(&["rm", "--force", &id]);
    };
    image("nylorun-test:declares", "/data");
    spaces.spec = json!({"image": "nylorun-test:declares"});
    assert_ne!(spaces.says("s", "id -u").await, "0");
    let container = of_instance(docker, &spaces.dir);
    let seen = inspect(docker, &container[0]);
    assert_eq!(seen["Config"]["Labels"]["nylorun.key"], key("s"));
    assert_ne!(seen["Config"]["Labels"]["nylorun.owner"], "nobody");
    assert_eq!(seen["State"]["Health"], json!(null), "{}", seen["State"]);
    let filled = spaces.bash("s", "echo x > /data/x && head -c 100M /dev/zero > /data/full").await;
    assert_ne!(filled["exitCode"], 0, "{filled}");
    let size = spaces.says("s", "stat -c %s /data/full").await;
    assert!(size.parse::<u64>().unwrap() <= 16 << 20, "{size}");
    assert_eq!(docker.docker(&["volume", "ls", "--quiet"]), "");
    spaces.manager.remove(Removal::everything()).await.unwrap();
    // Among the workspace's files it would make folders of root's.
    image("nylorun-test:inside", "/workspace/data");
    spaces.spec = json!({"image": "nylorun-test:inside"});
    let outcome = spaces.call("s", Tool::Bash, json!({"command": "true"})).await.unwrap();
    let ToolOutcome::Failed { code, message } = outcome else { panic!() };
    assert!(code == "sandbox.start_failed" && message.contains("/workspace/data"), "{code}: {message}");
    spaces.manager.remove(Removal::everything()).await.unwrap();
    for name in ["nylorun-test:declares", "nylorun-test:inside"] {
        docker.docker(&["rmi", "--force", name]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_belong_to_the_user_of_commands_and_tools_and_all_of_them_can_be_removed() {
    let Some(docker) = Dockerd::get() else { return };
    let spaces = spaces(docker);
    spaces.says("s", "echo made > made; mkdir -p dir/below; echo x > dir/below/x; echo t > /tmp/t").await;
    spaces.output("s", Tool::Write, json!({"path": "tools/file", "content": "a tool\n"})).await;
    for path in ["made", "dir/below/x", "tools", "tools/file", "../tmp/t"] {
        let meta = std::fs::metadata(spaces.folder("s").join(path)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), who(), "{path}");
    }
    // What one of them has made the other one reads, changes and deletes, and so does the next container.
    let edit = json!({"path": "made", "old_string": "made", "new_string": "edited"});
    assert_eq!(spaces.output("s", Tool::Edit, edit).await["replacements"], 1);
    assert_eq!(
        spaces.says("s", "cat made; echo more >> tools/file; cat tools/file").await,
        "edited\na tool\nmore"
    );
    docker.docker(&["rm", "--force", &of_instance(docker, &spaces.dir)[0]]);
    assert_eq!(
        spaces.says("s", "cat tools/file; rm -r tools dir; echo again > made; ls").await,
        "a tool\nmore\nmade"
    );
    // Closed folders, odd names, files without a right: removed with the workspace.
    spaces.says("s", "mkdir -p c/d; touch c/d/f c/\"$(printf 'a\\nb')\"; chmod 000 c/d/f c/d c; mkfifo pipe; ln -s /etc l").await;
    spaces.manager.remove(Removal::everything()).await.unwrap();
    assert!(!spaces.folder("s").parent().unwrap().exists());
    assert!(std::fs::metadata("/etc/passwd").is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_ends_in_a_command_is_told_and_the_next_one_goes_on() {
    if Dockerd::get().is_none() || !nix::unistd::Uid::effective().is_root() {
        return;
    }
    let dir = tempfile::Builder::new().prefix(super::dockerd::FOLDER).tempdir().unwrap();
    let mut daemon = Dockerd::command(dir.path()).spawn().unwrap();
    let docker = Dockerd::at(dir.path());
    let mut spaces = spaces(&docker);
    spaces.manager = manager_of(&spaces.dir, Kind::Docker, |means| means.docker = docker.means());
    let stop = |daemon: &mut std::process::Child, signal| {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(daemon.id().cast_signed()), signal).unwrap();
        daemon.wait().unwrap();
    };
    spaces.says("s", "echo kept > file").await;
    for signal in [nix::sys::signal::Signal::SIGTERM, nix::sys::signal::Signal::SIGKILL] {
        let begun = spaces.folder("s").join("begun");
        let _ = std::fs::remove_file(&begun);
        let call = tokio::spawn(spaces.start("s", Tool::Bash, json!({"command": "touch begun; sleep 300"})));
        while !begun.exists() {
            assert!(!call.is_finished());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let began = Instant::now();
        stop(&mut daemon, signal);
        // Killed it is lost: nobody knows how it went on. Stopped it has ended the command itself.
        match call.await.unwrap() {
            Err(error) => assert!(error.message.contains("the sandbox was lost"), "{error:?}"),
            Ok(ToolOutcome::Completed { output }) => assert_eq!(output["exitCode"], 137, "{output}"),
            Ok(failed) => panic!("{failed:?}"),
        }
        assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
        let outcome = spaces.call("s", Tool::Bash, json!({"command": "true"})).await.unwrap();
        let ToolOutcome::Failed { code, message } = outcome else { panic!() };
        assert_eq!(code, "sandbox.start_failed", "{message}");
        assert!(message.contains("the Docker daemon is not there any more"), "{message}");
        // The daemon below it dies with one that is killed, and may be taken for alive until somebody has waited for it.
        let _ = std::fs::remove_file(dir.path().join("exec/containerd/containerd.pid"));
        daemon = Dockerd::command(dir.path()).spawn().unwrap();
        let docker = Dockerd::at(dir.path());
        assert_eq!(spaces.says("s", "cat file").await, "kept");
        let all = of_instance(&docker, &spaces.dir);
        assert_eq!(all.len(), 1, "what could not be removed then is removed now: {all:?}");
    }
    spaces.manager.close(None).await;
    assert_eq!(of_instance(&docker, &spaces.dir), [""; 0]);
    stop(&mut daemon, nix::sys::signal::Signal::SIGTERM);
    Dockerd::clear(dir.path());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_is_not_there_is_named_with_what_to_do_and_nothing_is_fetched() {
    let Some(docker) = Dockerd::get() else { return };
    let mut spaces = spaces(docker);
    spaces.spec = json!({"image": "absent.test/nobody:9"});
    let outcome = spaces.call("s", Tool::Bash, json!({"command": "true"})).await.unwrap();
    let ToolOutcome::Failed { code, message } = outcome else { panic!() };
    assert_eq!(code, "sandbox.start_failed");
    assert!(message.contains("`docker pull absent.test/nobody:9`"), "{message}");
    assert_eq!(of_instance(docker, &spaces.dir), [""; 0]);
    // The one that all the others would get is missed before anything is asked for.
    let spaces = Spaces::of(Kind::Docker, |means| {
        means.docker.image = "absent.test/default:1".to_owned();
    });
    let report = spaces.manager.report().await;
    assert_eq!(report.backend, None);
    assert!(report.reason.contains("`docker pull absent.test/default:1`"), "{}", report.reason);
}

#[tokio::test]
async fn a_daemon_that_is_not_there_or_elsewhere_is_said_so() {
    for (host, says) in [
        ("unix:///nowhere/docker.sock", "there is no Docker daemon at /nowhere/docker.sock"),
        ("tcp://127.0.0.1:2375", "only a daemon on this machine"),
    ] {
        let spaces = Spaces::of(Kind::Docker, |means| means.docker.host = Some(host.to_owned()));
        let report = spaces.manager.report().await;
        assert!(report.backend.is_none() && report.reason.contains(says), "{}", report.reason);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_workspaces_come_and_go_and_leave_nothing() {
    let Some(docker) = Dockerd::get() else { return };
    let spaces = spaces(docker);
    spaces.says("warm", "true").await;
    spaces.manager.remove(Removal::everything()).await.unwrap();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let networks = || docker.docker(&["network", "ls", "--quiet"]);
    let (open, before, mut seen) = (descriptors(), networks(), Vec::new());
    for round in 0..50 {
        let sessions: Vec<String> = (0..4).map(|n| format!("s{round}-{n}")).collect();
        let command = "echo x > file; mkdir -p a/b; chmod 000 a; sleep 300 & echo started";
        let all = sessions.iter().map(|session| spaces.says(session, command));
        assert_eq!(futures_util::future::join_all(all).await, ["started"; 4]);
        seen.extend(of_instance(docker, &spaces.dir));
        spaces
            .manager
            .remove(Removal::keys(sessions.iter().map(|session| key(session)).collect()))
            .await
            .unwrap();
    }
    assert_eq!((seen.len(), of_instance(docker, &spaces.dir)), (200, Vec::new()));
    assert_eq!(
        super::figures::folders(&spaces.dir.path().join("sandboxes")),
        Vec::<std::path::PathBuf>::new()
    );
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(spaces.dir.path().to_str().unwrap()), "{mounts}");
    // Neither of the containers nor of what runs them.
    assert_eq!((networks(), docker.docker(&["volume", "ls", "--quiet"])), (before, String::new()));
    for id in &seen {
        assert!(!mounts.contains(id) && super::figures::alive(id) == 0, "{id}");
        for controller in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
            assert!(!controller.path().join("docker").join(id).exists(), "{controller:?} of {id}");
        }
    }
    assert!(descriptors() <= open + 8, "{} after {open}", descriptors());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_command_does_nothing_of_it_runs_on() {
    let Some(docker) = Dockerd::get() else { return };
    let spaces = spaces(docker);
    let alone = "ps ax > /tmp/ps; grep -v -e PID -e docker-init -e 'read -r _' -e ps -e sh /tmp/ps | wc -l";
    spaces.says("s", "true").await;
    let container = of_instance(docker, &spaces.dir);
    // What would end it is killed; what it leaves behind is in sessions of its own.
    let leave = "(setsid setsid sleep 301 >/dev/null 2>&1 &); (setsid sleep 302 </dev/null &)";
    for command in
        [format!("{leave}; kill -9 $PPID"), format!("{leave}; kill -STOP $PPID; exit 0"), leave.to_owned()]
    {
        let input = json!({"command": command, "timeout": 2});
        let began = Instant::now();
        let _ = spaces.output("s", Tool::Bash, input).await;
        assert!(began.elapsed() < Duration::from_secs(15), "{command}: {:?}", began.elapsed());
        assert_eq!(spaces.says("s", alone).await, "0", "{command}");
    }
    assert_eq!(of_instance(docker, &spaces.dir), container, "it was not even started anew");
    // A container that is full of processes starts nothing that could end them: it goes itself.
    let bomb = json!({"command": "b() { b | b & }; b; b; sleep 60", "timeout": 2});
    assert_eq!(spaces.output("s", Tool::Bash, bomb).await["timedOut"], true);
    assert_eq!(spaces.says("s", alone).await, "0");
    // One that somebody has removed is missed when it is needed.
    spaces.says("s", "echo kept > file").await;
    docker.docker(&["rm", "--force", &of_instance(docker, &spaces.dir)[0]]);
    assert_eq!(spaces.says("s", "cat file").await, "kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_follow_no_link_to_the_host_and_see_nothing_of_the_image() {
    let Some(docker) = Dockerd::get() else { return };
    let spaces = spaces(docker);
    let secret = spaces.dir.path().join("secret");
    std::fs::write(&secret, "the host's secret").unwrap();
    spaces
        .says(
            "s",
            &format!(
                "ln -s {} link; ln -s {} dir; ln -s /etc/passwd passwd",
                secret.display(),
                spaces.dir.path().display()
            ),
        )
        .await;
    for (tool, input) in [
        (Tool::Read, json!({"path": "link"})),
        (Tool::Read, json!({"path": "dir/secret"})),
        (Tool::Edit, json!({"path": "link", "old_string": "host", "new_string": "x"})),
        (Tool::Grep, json!({"pattern": "secret", "path": "dir"})),
        (Tool::Read, json!({"path": secret.to_str().unwrap()})),
        (Tool::Read, json!({"path": "/usr/bin/env"})),
        (Tool::Read, json!({"path": "../etc/services"})),
        (Tool::Glob, json!({"pattern": "*", "path": "/usr"})),
        (Tool::Write, json!({"path": "/etc/x", "content": "x"})),
    ] {
        let outcome = spaces.call("s", tool, input.clone()).await.unwrap();
        assert!(matches!(outcome, ToolOutcome::Failed { .. }), "{input}: {outcome:?}");
    }
    let _ = spaces.call("s", Tool::Write, json!({"path": "link", "content": "overwritten"})).await.unwrap();
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "the host's secret");
    symlink(&secret, spaces.folder("s").join("planted")).unwrap();
    // It leads to the sandbox's own folder of that name, where the tool has written.
    assert_eq!(spaces.bash("s", "cat planted").await["stdout"], "overwritten");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_reaches_the_hosts_of_its_list_and_nothing_else() {
    if Dockerd::get().is_none() {
        return;
    }
    let internet = internet().await;
    let spaces = Spaces::of(Kind::Docker, |means| {
        means.egress = internet.egress.clone();
    });
    egress::hosts_of_the_list_are_reached_and_nothing_else(spaces, &internet).await;
    let spaces = Spaces::of(Kind::Docker, |means| {
        means.egress = internet.egress.clone();
    });
    egress::each_sandbox_has_a_list_of_its_own(spaces).await;
}

/// Where the process that is killed keeps its workspaces.
const DOOMED: &str = "NYLORUN_TEST_DOOMED";
/// How long the command sleeps that runs meanwhile: a number that no other has.
const SECONDS: &str = "NYLORUN_TEST_SECONDS";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is a process for another test, which kills it"]
async fn a_process_that_is_killed() {
    let Some(docker) = Dockerd::get() else { return };
    let root = std::env::var(DOOMED).unwrap();
    let dir = TempDir::with_prefix_in("doomed", &root).unwrap();
    let mut spaces = spaces(docker);
    spaces.manager = manager_of(&dir, Kind::Docker, |means| {
        means.root = format!("{root}/sandboxes").into();
    });
    let seconds = std::env::var(SECONDS).unwrap();
    spaces.says("s", &format!("touch started; sleep {seconds} & sleep {seconds}")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_ends_with_its_process_and_what_is_left_is_removed_at_the_next_start() {
    let Some(docker) = Dockerd::get() else { return };
    let dir = tempfile::tempdir().unwrap();
    let seconds = (300_000 + std::process::id()).to_string();
    let runs = || super::figures::alive(&format!("sleep\0{seconds}"));
    let mut doomed = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "docker::a_process_that_is_killed"])
        .env(DOOMED, dir.path())
        .env(SECONDS, &seconds)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while runs() < 2 {
        assert!(began.elapsed() < Duration::from_secs(60) && doomed.try_wait().unwrap().is_none());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(of_instance(docker, &dir).len(), 1);
    // A container of another folder of workspaces, whose process is dead as well.
    let other = "label.test/other";
    let named =
        |name: &str| docker.docker(&["ps", "--quiet", "--filter", &format!("label=nylorun.instance={name}")]);
    let label = format!("nylorun.instance={other}");
    docker.docker(&[
        "run",
        "--detach",
        "--network",
        "none",
        "--label",
        &label,
        "--label",
        "nylorun.owner=1 1",
        super::dockerd::IMAGE,
        "sleep",
        "300",
    ]);
    let start = || async {
        let manager = manager_of(&dir, Kind::Docker, |_| {});
        assert!(manager.report().await.backend.is_some());
        manager
    };
    start().await.close(None).await;
    assert_eq!(of_instance(docker, &dir).len(), 1, "its process lives");
    doomed.kill().unwrap();
    doomed.wait().unwrap();
    let killed = Instant::now();
    while !of_instance(docker, &dir).is_empty() {
        assert!(killed.elapsed() < Duration::from_secs(10), "it goes on without its process");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(runs(), 0);
    // One that a process has made and not started before it was killed.
    docker.docker(&[
        "create",
        "--network",
        "none",
        "--label",
        &format!("nylorun.instance={}", dir.path().join("sandboxes").display()),
        "--label",
        "nylorun.owner=1 1",
        super::dockerd::IMAGE,
        "true",
    ]);
    assert_eq!(of_instance(docker, &dir).len(), 1);
    start().await.close(None).await;
    assert_eq!(of_instance(docker, &dir), [""; 0]);
    let others = named(other);
    assert!(!others.is_empty(), "another's is left alone");
    docker.docker(&["rm", "--force", &others]);
}
