//! A real server in a home of its own, on ports that the system picks.
#![allow(dead_code, missing_docs)] // Each test file uses its part of this module.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nylorun_actors::model::json::{self, Json};

/// The binary under test.
pub const BINARY: &str = env!("CARGO_BIN_EXE_nylorun");

/// How long a server may take to start or to stop on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A command of the binary with nothing of this machine's settings.
pub fn nylorun(home: &Path) -> Command {
    let mut command = Command::new(BINARY);
    clean(&mut command);
    command.env("NYLORUN_HOME", home).current_dir(home);
    command
}

/// Removes every setting that the test's own environment may have.
pub fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().into_owned();
        if text.starts_with("NYLORUN_")
            || text.starts_with("MODEL_")
            || text.to_ascii_lowercase().ends_with("_proxy")
        {
            command.env_remove(name);
        }
    }
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Options {
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self { args: vec!["--listen".into(), "127.0.0.1:0".into()], env: Vec::new() }
    }
}

impl Options {
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A running server.
pub struct Server {
    child: Option<Child>,
    home: PathBuf,
    /// Kept so that the home goes away with the server.
    _dir: Option<tempfile::TempDir>,
    options: Options,
    log: mpsc::Receiver<String>,
    /// The line that it printed when it was ready.
    pub ready: String,
    /// Base URL of the API.
    pub url: String,
    /// Base URL of the operator API.
    pub operator_url: String,
    /// The local application key.
    pub key: String,
    /// The admin key.
    pub admin_key: String,
}

impl Server {
    /// Starts one in a new home.
    pub fn start() -> Self {
        Self::start_with(Options::default())
    }

    /// The same with the sample agent and the fixture model.
    pub fn start_sample() -> Self {
        Self::start_with(Options::default().arg("--sample"))
    }

    pub fn start_with(options: Options) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let home = dir.path().join("home");
        std::fs::create_dir(&home).expect("a home");
        let mut server = Self::start_in(&home, options);
        server._dir = Some(dir);
        server
    }

    /// Starts one in an existing home.
    pub fn start_in(home: &Path, options: Options) -> Self {
        let mut server = Self {
            child: None,
            home: home.to_owned(),
            _dir: None,
            options,
            log: mpsc::channel().1,
            ready: String::new(),
            url: String::new(),
            operator_url: String::new(),
            key: String::new(),
            admin_key: String::new(),
        };
        server.spawn();
        server
    }

    fn spawn(&mut self) {
        let mut command = nylorun(&self.home);
        command.arg("serve").args(&self.options.args);
        command.envs(self.options.env.iter().map(|(name, value)| (name, value)));
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let (ready, line) = mpsc::channel();
        let output = child.stdout.take().expect("piped");
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = ready.send(line);
            }
        });
        let (log, lines) = mpsc::channel();
        let errors = child.stderr.take().expect("piped");
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                let _ = log.send(line);
            }
        });
        self.log = lines;
        self.child = Some(child);
        let Ok(line) = line.recv_timeout(PATIENCE) else {
            panic!("not ready; its log:\n{}", self.log().join("\n"));
        };
        assert!(line.starts_with("nylorun ready "), "{line}");
        let field = |name: &str| {
            line.split(' ').find_map(|word| word.strip_prefix(name)).unwrap_or_default().to_owned()
        };
        self.url = field("api=");
        self.operator_url = field("operator=");
        if self.operator_url.is_empty() {
            self.operator_url.clone_from(&self.url);
        }
        self.ready = line;
        self.key = self.secret("credentials.json", "applicationKey");
        self.admin_key = self.secret("host-credentials.json", "adminKey");
    }

    fn secret(&self, file: &str, field: &str) -> String {
        let text = std::fs::read(self.home.join(file)).expect(file);
        json::parse(&text).expect(file)[field].as_str().expect(field).to_owned()
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Lines it has logged and nobody has taken yet.
    pub fn log(&self) -> Vec<String> {
        self.log.try_iter().collect()
    }

    /// A command against this server.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = nylorun(&self.home);
        command.args(args);
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().expect("the binary starts")
    }

    /// Runs a command that must succeed and answer one line of JSON.
    pub fn json(&self, args: &[&str]) -> Json {
        let output = self.run(&[args, &["--json"]].concat());
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        json::parse(&output.stdout).unwrap_or_else(|error| panic!("{args:?}: {error}: {}", stdout(&output)))
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.pid()).expect("a pid")), signal).expect("signalled");
    }

    /// Kills it with -9 and waits until it is gone.
    pub fn kill9(&mut self) {
        self.signal(Signal::SIGKILL);
        self.wait();
    }

    /// Asks it to stop and waits until it has.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait()
    }

    /// Whether it has not ended by itself.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().expect("looked at").is_none())
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        wait(self.child.take().expect("it runs"))
    }

    /// Starts it again in the same home. It must have ended.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "it still runs");
        self.spawn();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for the end of a process, and fails when it takes too long.
pub fn wait(mut child: Child) -> ExitStatus {
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().expect("waited") {
            return status;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    panic!("the process did not end");
}

/// Runs `serve` where it must end by itself: its exit code and what it said.
pub fn refused(home: &Path, args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = nylorun(home);
    command.arg("serve").args(args).envs(env.iter().copied());
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
    let mut errors = child.stderr.take().expect("piped");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let _ = errors.read_to_string(&mut text);
        text
    });
    let status = wait(child);
    (status.code(), reader.join().expect("read"))
}
