//! The suites once more, as an ordinary user: this program runs itself as one, with a home of its own and no right of
//! root's. What an ordinary user starts is not somebody else inside its cage, limits no control group, and asks a daemon of
//! root's only through the group of its socket.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Output};

use nix::unistd::Uid;

use super::dockerd::{DAEMON, Dockerd};

/// Names the program's copy that an ordinary user finds.
pub const PROGRAM: &str = "NYLORUN_TEST_PROGRAM";

/// The first of the users; each test has one, so that what one leaves is nobody else's.
const USERS: u32 = 64_610;
/// The group of the daemon's socket.
const GROUP: u32 = 64_602;

/// A user with a home, and copies of this program and the one that is tested in it.
struct Ordinary {
    home: tempfile::TempDir,
    user: u32,
    groups: String,
}

impl Ordinary {
    /// `None` where this process is one already.
    fn new(number: u32, groups: &str) -> Option<Self> {
        if !Uid::effective().is_root() {
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let user = USERS + number;
        let own = |path: &Path, mode: u32| {
            chown(path, Some(user), Some(user)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        own(home.path(), 0o755);
        let tmp = home.path().join("tmp");
        fs::create_dir(&tmp).unwrap();
        own(&tmp, 0o700);
        let copies =
            [(std::env::current_exe().unwrap(), "tests"), (env!("CARGO_BIN_EXE_nylorun").into(), "nylorun")];
        for (from, name) in copies {
            let to = home.path().join(name);
            fs::copy(from, &to).unwrap();
            own(&to, 0o755);
        }
        Some(Self { home, user, groups: groups.to_owned() })
    }

    fn run(&self, name: &str, arguments: &[&str], env: &[(&str, String)]) -> Output {
        let (user, home) = (self.user.to_string(), self.home.path());
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--regid", &user, "--inh-caps=-all", "--no-new-privs"]);
        if self.groups.is_empty() {
            command.arg("--clear-groups");
        } else {
            command.args(["--groups", &self.groups]);
        }
        command.arg(home.join(name)).args(arguments).current_dir(home);
        command.env("HOME", home).env("TMPDIR", home.join("tmp")).env(PROGRAM, home.join("nylorun"));
        command.envs(env.iter().map(|(name, value)| (*name, value)));
        command.env_remove("XDG_RUNTIME_DIR").output().unwrap()
    }

    /// Runs tests of this program; they pass, and there are so many of them.
    fn pass(&self, tests: &str, least: usize, skip: &[&str], env: &[(&str, String)]) {
        let skips: Vec<&str> = skip.iter().flat_map(|name| ["--skip", name]).collect();
        // One at a time: they look at what there is on the machine before and after.
        let arguments = [&[tests, "--test-threads", "1"], &skips[..]].concat();
        let ran = self.run("tests", &arguments, env);
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{said}\n{}", String::from_utf8_lossy(&ran.stderr));
        let passed = said.lines().find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next());
        let passed: usize = passed.and_then(|passed| passed.parse().ok()).unwrap_or(0);
        assert!(passed >= least, "{passed} tests of {tests}: {said}");
    }
}

/// Makes a test of each: its name, a number of its own, the tests that it runs, at least so many.
macro_rules! as_an_ordinary_user {
    ($($name:ident $number:literal $tests:literal $least:literal)*) => {
        $(#[test]
        fn $name() {
            if let Some(user) = Ordinary::new($number, "") {
                user.pass($tests, $least, &[], &[]);
            }
        })*
    };
}

as_an_ordinary_user! {
    namespaces_keep_apart 0 "escapes::namespaces::" 9
    namespaces_limit_and_leave_nothing 1 "share::namespaces::" 10
    namespaces_work 2 "conformance::namespaces::" 7
    namespaces_fall_for_no_trick 7 "tricks::namespaces::" 6
    landlock_falls_for_no_trick 8 "tricks::landlock::" 6
    landlock_keeps_apart 3 "escapes::landlock::" 9
    landlock_limits_and_leaves_nothing 4 "share::landlock::" 10
    landlock_works 5 "conformance::landlock::" 7
    the_unsafe_one_works 6 "conformance::process::" 7
}

/// In a module of this name, so that a machine without a daemon leaves them out.
mod docker {
    use super::*;

    /// What only root's Runtime has: the way out of a container.
    const OF_ROOT: [&str; 1] = ["a_container_reaches_the_hosts_of_its_list_and_nothing_else"];

    fn pass(number: u32, tests: &str, least: usize) {
        let Some(docker) = Dockerd::get() else { return };
        let Some(user) = Ordinary::new(number, &GROUP.to_string()) else { return };
        chown(docker.dir().join("docker.sock"), Some(0), Some(GROUP)).unwrap();
        let env = [(DAEMON, docker.dir().display().to_string())];
        user.pass(tests, least, &OF_ROOT, &env);
    }

    #[test]
    fn containers_keep_apart() {
        pass(10, "escapes::docker::", 9);
    }

    #[test]
    fn containers_fall_for_no_trick() {
        pass(17, "tricks::docker::", 6);
    }

    #[test]
    fn containers_limit_and_leave_nothing() {
        pass(11, "share::docker::", 9);
    }

    #[test]
    fn containers_work() {
        pass(12, "conformance::docker::", 7);
    }

    #[test]
    fn containers_are_what_they_shall_be() {
        pass(13, "docker::files_", 1);
        pass(14, "docker::a_", 2);
        pass(15, "docker::what_", 2);
    }

    #[test]
    fn who_is_not_in_the_group_of_the_socket_is_told_so() {
        let Some(docker) = Dockerd::get() else { return };
        let Some(user) = Ordinary::new(16, "") else { return };
        let env = [
            ("DOCKER_HOST", format!("unix://{}/docker.sock", docker.dir().display())),
            ("NYLORUN_SANDBOX_IMAGE", super::super::dockerd::IMAGE.to_owned()),
        ];
        let doctor = user.run("nylorun", &["doctor"], &env);
        let said = String::from_utf8_lossy(&doctor.stdout);
        let line = said.lines().find(|line| line.starts_with("docker ")).unwrap_or_default();
        assert!(line.contains("this user may not ask the Docker daemon"), "{said}");
    }
}
