//! Starting and stopping the real binary: the ready line, the home's files, exit codes, one process per home.

mod common;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::time::Duration;

use common::{Options, Server, nylorun, refused, stderr, stdout};
use nylorun_actors::model::json::{self, Json};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())).permissions().mode()
        & 0o777
}

fn file(server: &Server, name: &str) -> Json {
    json::parse(&std::fs::read(server.home().join(name)).expect(name)).expect(name)
}

#[test]
fn a_first_start_prints_one_line_and_writes_the_files_of_the_home() {
    let mut server = Server::start();
    assert_eq!(server.ready, format!("nylorun ready api={}", server.url));
    assert!(server.url.starts_with("http://127.0.0.1:"));

    assert_eq!(mode(server.home()), 0o700);
    for name in ["host-credentials.json", "credentials.json", "keys/vault-kek"] {
        assert_eq!(mode(&server.home().join(name)), 0o600, "{name}");
    }
    let (host, link) = (file(&server, "host.json"), file(&server, "link.json"));
    assert_eq!(link["format"], 3);
    assert_eq!(link["hostUrl"], server.url.as_str());
    assert_eq!(link["hostId"], host["hostId"]);
    assert!(link["tenantId"].as_str().expect("a Tenant").starts_with("tn_"));
    assert_eq!(host["host"], "127.0.0.1");
    assert!(server.url.ends_with(&format!(":{}", host["port"])));
    let credentials = file(&server, "credentials.json");
    assert_eq!((&credentials["format"], &credentials["principalId"]), (&Json::from(1), &Json::from("local")));

    let keys = server.json(&["keys", "list"]);
    assert!(keys["keys"].as_array().expect("a list").iter().any(|key| key["id"] == "local"), "{keys}");
    assert!(server.terminate().success());
}

#[test]
fn a_second_start_keeps_ids_and_keys_and_writes_the_link_anew() {
    let mut server = Server::start();
    let (host, link) = (file(&server, "host.json"), file(&server, "link.json"));
    let (key, admin_key) = (server.key.clone(), server.admin_key.clone());
    server.kill9();
    server.restart();
    assert_eq!((&server.key, &server.admin_key), (&key, &admin_key));
    assert_eq!(file(&server, "host.json")["hostId"], host["hostId"]);
    assert_eq!(file(&server, "link.json")["tenantId"], link["tenantId"]);
    assert_eq!(file(&server, "link.json")["hostUrl"], server.url.as_str());
    assert!(server.run(&["status"]).status.success());
}

#[test]
fn a_second_process_on_a_home_is_refused_and_told_who_is_there() {
    let server = Server::start();
    let (code, said) = refused(server.home(), &["--listen", "127.0.0.1:0"], &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("home-in-use") && said.contains(&format!("process {}", server.pid())), "{said}");
    assert!(server.run(&["status"]).status.success(), "the first one goes on");
}

#[test]
fn a_second_process_on_a_database_is_refused_and_told_who_is_there() {
    let server = Server::start();
    let other = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite://{}", server.home().join("nylorun.db").display());
    let (code, said) = refused(other.path(), &["--listen", "127.0.0.1:0", "--database-url", &url], &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("database-in-use") && said.contains(&server.pid().to_string()), "{said}");
}

#[test]
fn a_taken_port_ends_with_98_and_leaves_the_other_port_free() {
    let home = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().map(|address| (taken, address.to_string())).expect("an address");
    let (code, said) = refused(home.path(), &["--listen", &taken.1], &[]);
    assert_eq!(code, Some(98), "{said}");
    assert!(said.contains("port-in-use") && said.contains("--listen"), "{said}");

    let (code, said) = refused(home.path(), &["--listen", "127.0.0.1:0", "--operator-listen", &taken.1], &[]);
    assert_eq!(code, Some(98), "{said}");
    assert!(said.contains("--operator-listen"), "{said}");
}

#[test]
fn listening_beyond_the_machine_needs_permission() {
    let home = tempfile::tempdir().expect("a directory");
    let (code, said) = refused(home.path(), &["--listen", "0.0.0.0:0"], &[]);
    assert_eq!(code, Some(99), "{said}");
    assert!(said.contains("non-loopback-refused") && said.contains("allowed-hosts"), "{said}");
    let (code, _) = refused(home.path(), &[], &[("NYLORUN_LISTEN_PORT", "0")]);
    assert_eq!(code, Some(99), "container mode listens everywhere");

    let wide = Server::start_with(Options {
        args: vec!["--listen".into(), "0.0.0.0:0".into(), "--allowed-hosts".into(), "api.example:443".into()],
        env: Vec::new(),
    });
    assert!(wide.run(&["status"]).status.success());
}

#[test]
fn a_malformed_setting_refuses_to_start_and_names_its_variable() {
    let home = tempfile::tempdir().expect("a directory");
    for (name, value) in [
        ("NYLORUN_LISTEN_PORT", "http"),
        ("NYLORUN_LOG", "nylorun=loud"),
        ("NYLORUN_DATABASE_URL", "postgres://u:secret@h/db"),
    ] {
        let (code, said) = refused(home.path(), &[], &[(name, value)]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(name) && !said.contains("secret"), "{said}");
    }
    std::fs::write(home.path().join("nylorun.toml"), "listne = 1\n").expect("written");
    let (code, said) = refused(home.path(), &[], &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("`listne`"), "{said}");
}

#[test]
fn a_home_that_cannot_be_one_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "").expect("written");
    let below = file.join("home").display().to_string();
    let (code, said) = refused(dir.path(), &["--home", &below], &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("home-unusable"), "{said}");
}

/// Starts a server that never becomes ready, and gives what `status` says about it.
fn quarantined(prepare: impl FnOnce(&Path)) -> (Option<i32>, String) {
    let mut server = Server::start();
    server.terminate();
    prepare(server.home());
    let mut child = nylorun(server.home())
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("started");
    let mut answer = (None, String::new());
    for _ in 0..300 {
        std::thread::sleep(Duration::from_millis(100));
        assert!(child.try_wait().expect("waited").is_none(), "the Host goes on");
        let output = server.run(&["status"]);
        answer = (output.status.code(), stderr(&output));
        // While it opens, the cause is not known yet; before it listens, nobody answers.
        if answer.0 != Some(3) && !answer.1.contains("error[not_ready]") {
            break;
        }
    }
    let _ = child.kill();
    let _ = child.wait();
    answer
}

#[test]
fn a_corrupt_database_is_quarantined_with_its_cause() {
    let (code, said) = quarantined(|home| {
        std::fs::write(home.join("nylorun.db"), "this is no database at all, and long enough")
            .expect("written");
    });
    assert_eq!(code, Some(7), "{said}");
    assert!(said.contains("corrupt") && said.contains("what to do"), "{said}");
}

#[test]
fn a_database_of_a_newer_version_is_quarantined_with_its_cause() {
    use diesel::{Connection as _, RunQueryDsl as _};
    let (code, said) = quarantined(|home| {
        let path = home.join("nylorun.db").display().to_string();
        let mut database = diesel::SqliteConnection::establish(&path).expect("opened");
        diesel::sql_query("INSERT INTO __diesel_schema_migrations (version) VALUES ('99999999999999')")
            .execute(&mut database)
            .expect("written");
    });
    assert_eq!(code, Some(5), "{said}");
    assert!(said.contains("error[schema-too-new]"), "{said}");
}

#[test]
fn a_database_that_comes_late_is_waited_for() {
    let home = tempfile::tempdir().expect("a directory");
    let folder = home.path().join("volume");
    let mut child = nylorun(home.path())
        .args(["serve", "--listen", "127.0.0.1:0", "--database-url"])
        .arg(format!("sqlite://{}", folder.join("nylorun.db").display()))
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("started");
    let stdout = child.stdout.take().expect("piped");
    let line = std::thread::spawn(move || {
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).expect("read");
        line
    });
    let mut said = String::new();
    for _ in 0..300 {
        std::thread::sleep(Duration::from_millis(100));
        let output = nylorun(home.path()).arg("status").output().expect("ran");
        said = stderr(&output);
        if said.contains("error[open-failed]") {
            assert_eq!(output.status.code(), Some(7), "{said}");
            break;
        }
    }
    assert!(said.contains("error[open-failed]"), "{said}");
    std::fs::create_dir(&folder).expect("made");
    assert!(line.join().expect("read").starts_with("nylorun ready "));
    assert!(nylorun(home.path()).arg("status").output().expect("ran").status.success());
    let _ = child.kill();
    let _ = child.wait();
}

#[test]
fn a_lost_vault_key_is_made_again_only_while_nothing_is_sealed() {
    let mut server = Server::start();
    server.terminate();
    std::fs::remove_file(server.home().join("keys/vault-kek")).expect("removed");
    server.restart();
    let mut set = server.command(&["model", "set", "openai", "gpt-4o-mini", "--key-env", "A_KEY"]);
    let output = set.env("A_KEY", "sk-test").output().expect("ran");
    assert!(output.status.success(), "{}", stderr(&output));
    server.terminate();
    drop(server);

    let (code, said) = quarantined(|home| {
        // Sealed under a key that is then lost: see `seal`.
        seal(home);
        std::fs::remove_file(home.join("keys/vault-kek")).expect("removed");
    });
    assert_eq!(code, Some(7), "{said}");
    assert!(said.contains("kek-missing"), "{said}");
}

fn seal(home: &Path) {
    let mut server = Server::start_in(home, Options::default());
    let mut set = server.command(&["model", "set", "openai", "gpt-4o-mini", "--key-env", "A_KEY"]);
    assert!(set.env("A_KEY", "sk-test").output().expect("ran").status.success());
    server.terminate();
}

#[test]
fn the_operator_listener_takes_the_operator_api_with_it() {
    let server = Server::start_with(Options::default().arg("--operator-listen").arg("127.0.0.1:0"));
    assert!(server.ready.contains(" operator=http://127.0.0.1:"), "{}", server.ready);
    assert_ne!(server.url, server.operator_url);
    assert!(server.run(&["keys", "list"]).status.success(), "found through the link");
    let public = server.run(&["keys", "list", "--url", &server.url, "--key", &server.admin_key]);
    assert_eq!(public.status.code(), Some(1), "{}", stderr(&public));
}

#[test]
fn an_operator_stops_the_host_over_http() {
    let mut server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let answer = runtime.block_on(async {
        reqwest::Client::new()
            .post(format!("{}/v1/admin/host/shutdown", server.url))
            .bearer_auth(&server.admin_key)
            .header("nylorun-protocol", "7")
            .send()
            .await
            .expect("answered")
            .status()
    });
    assert_eq!(answer, 200);
    assert!(server.wait().success());
}

#[test]
fn config_shows_each_setting_with_its_origin() {
    let home = tempfile::tempdir().expect("a directory");
    std::fs::write(home.path().join("nylorun.toml"), "tenant-name = \"filed\"\n").expect("written");
    let output = nylorun(home.path())
        .args(["config", "--json", "--log", "json"])
        .env("NYLORUN_PUBLIC_URL", "https://user:hunter2@runtime.example/")
        .output()
        .expect("ran");
    assert!(output.status.success(), "{}", stderr(&output));
    let settings = json::parse(&output.stdout).expect("JSON")["settings"].clone();
    let origin = |key: &str| settings[key]["origin"].as_str().expect(key).to_owned();
    assert_eq!(origin("log"), "flag --log");
    assert_eq!(origin("public-url"), "environment NYLORUN_PUBLIC_URL");
    assert!(origin("tenant-name").ends_with("nylorun.toml"));
    assert_eq!(origin("listen"), "default");
    assert_eq!(settings["home"]["value"], home.path().display().to_string());
    assert!(!stdout(&output).contains("hunter2"));
}

/// Runs `serve` as a user who owns nothing (root may write everywhere), on a copy of the binary that the user reaches.
fn as_nobody(folder: &Path, home: &Path) -> std::process::Output {
    let binary = folder.join("nylorun");
    if !binary.exists() {
        std::fs::copy(common::BINARY, &binary).expect("a copy");
    }
    let mut command = std::process::Command::new(&binary);
    common::clean(&mut command);
    command.args(["serve", "--listen", "127.0.0.1:0"]).env("NYLORUN_HOME", home).current_dir(folder);
    if nix::unistd::Uid::effective().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command.output().expect("it ends by itself")
}

#[test]
fn a_home_that_may_not_be_written_is_refused_by_name_and_left_alone() {
    let folder = tempfile::tempdir().expect("a directory");
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    set(folder.path(), 0o755);
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).expect("a home");
    set(&empty, 0o555);
    let output = as_nobody(folder.path(), &empty);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("home-read-only") && stderr(&output).contains("writable"),
        "{}",
        stderr(&output)
    );

    // A home with a database in it, which only its owner may write.
    let full = folder.path().join("full");
    std::fs::create_dir(&full).expect("a home");
    let mut server = Server::start_in(&full, Options::default());
    assert!(server.terminate().success());
    let before = std::fs::read(full.join("nylorun.db")).expect("the database");
    for entry in std::fs::read_dir(&full).expect("the home").flatten() {
        set(&entry.path(), if entry.path().is_dir() { 0o555 } else { 0o444 });
    }
    set(&full, 0o555);
    let output = as_nobody(folder.path(), &full);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("read-only"), "{}", stderr(&output));
    assert_eq!(std::fs::read(full.join("nylorun.db")).expect("the database"), before);
}
