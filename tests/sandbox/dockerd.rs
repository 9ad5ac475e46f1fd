//! A Docker daemon for tests: one for all test processes at once, on a socket, folder and process id file of its own,
//! touching no firewall, no bridge and no image of the machine. It ends, with all it has, when no test has used it for
//! some seconds.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nylorun::sandbox::docker::DockerMeans;

/// The image that the daemon is given: a small Debian, from the files of this machine.
pub const IMAGE: &str = "nylorun-test:1";

/// What the folder of a daemon is called, with a number after it.
pub const FOLDER: &str = "nylorun-dockerd";

/// Names the folder of the daemon that an ordinary user asks, who cannot start one.
pub const DAEMON: &str = "NYLORUN_TEST_DOCKERD";

/// Removes a folder with what is mounted in it.
const CLEAR: &str = r#"
mount | awk -v dir="$1/" 'index($3, dir) == 1 { print $3 }' | sort -r | while read -r mount; do umount -l "$mount"; done
rm -rf "$1"
"#;

/// Starts the daemon and stays beside it. Its arguments: the folder, the file that its users lock.
const BESIDE: &str = r#"
dir=$1; users=$2
dockerd --host "unix://$dir/docker.sock" --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/pid" \
    --iptables=false --ip-forward=false --ip-masq=false --bridge=none --userland-proxy=false >"$dir/log" 2>&1 &
daemon=$!
end() {
    kill "$daemon" 2>/dev/null; wait "$daemon" 2>/dev/null
    mount | awk -v dir="$dir/" 'index($3, dir) == 1 { print $3 }' | sort -r | while read -r mount; do umount -l "$mount"; done
    rm -rf "$dir"
}
idle=0
while kill -0 "$daemon" 2>/dev/null; do
    sleep 1
    if flock -n -x "$users" true; then idle=$((idle + 1)); else idle=0; fi
    # Whoever comes meanwhile waits until it is gone, and starts another.
    if [ "$idle" -ge 15 ]; then exec 9<"$users"; flock -n -x 9 && { end; exit; }; exec 9<&-; fi
done
exec 9<"$users"; flock -x 9; end
"#;

/// Lists the files of an image: essential packages, Python where there is one, and the libraries that their programs need.
const LIST: &str = r#"
packages=$(dpkg-query -W -f '${Essential} ${Package}\n' | awk '$1 == "yes" { print $2 }')
python=$(dpkg-query -W -f '${Package}\n' 'python3*-minimal' 'libpython3*-minimal' 'libpython3*-stdlib' python3 2>/dev/null)
dpkg -L $packages procps $python 2>/dev/null | grep -v -E '^/usr/share/(doc|man|locale|info|lintian|bug)/|^/etc/|^/(var|run|boot)|^/\.$' >"$1.all"
while read -r file; do [ -f "$file" ] && [ -x "$file" ] && echo "$file"; done <"$1.all" | xargs ldd 2>/dev/null |
    grep -o '/[^ ]*' | grep -v ':$' | sort -u | while read -r library; do echo "$library"; readlink -f "$library"; done >>"$1.all"
printf '%s\n' /bin /sbin /lib /lib64 /etc /etc/passwd /etc/group /tmp >>"$1.all"
# Where the old folders are links, what is said to be in them is where they lead.
[ -L /bin ] && sed -i -E 's,^/(bin|sbin|lib|lib64)/,/usr/\1/,' "$1.all"
sed 's,^/,,' "$1.all" | sort -u >"$1"
"#;

/// A daemon that runs as long as this lives.
pub struct Dockerd {
    dir: PathBuf,
    _user: File,
}

/// Why there is none here: told to whoever runs the tests.
pub fn missing() -> Option<String> {
    let on_path = |name: &str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
            .any(|dir| dir.join(name).is_file())
    };
    if !nix::unistd::Uid::effective().is_root() {
        return Some("a daemon of one's own takes root".to_owned());
    }
    let tools = ["dockerd", "docker", "docker-init", "dpkg", "bash", "flock", "tar"];
    let lacks: Vec<&str> = tools.into_iter().filter(|name| !on_path(name)).collect();
    (!lacks.is_empty()).then(|| format!("there is no {} (Debian: docker.io)", lacks.join(", ")))
}

impl Dockerd {
    /// The daemon, started if it does not run, and held until this process ends. `None` where it cannot be had, which is
    /// said loudly.
    pub fn get() -> Option<&'static Self> {
        static DAEMON: OnceLock<Option<Dockerd>> = OnceLock::new();
        DAEMON.get_or_init(Self::find).as_ref()
    }

    fn find() -> Option<Self> {
        if let Some(dir) = std::env::var_os(DAEMON) {
            // Whoever has started this process holds it.
            return Some(Self { dir: dir.into(), _user: File::open("/dev/null").unwrap() });
        }
        if let Some(why) = missing() {
            eprintln!("\n*** SKIPPED, nothing was tested: {why} ***\n");
            return None;
        }
        let locks = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let lock = |name: &str| {
            File::options().create(true).write(true).truncate(false).open(locks.join(name)).unwrap()
        };
        let user = lock("dockerd.users");
        user.lock_shared().unwrap();
        let starting = lock("dockerd.start");
        starting.lock().unwrap();
        let mark = locks
            .to_string_lossy()
            .bytes()
            .fold(0_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let dir = std::env::temp_dir().join(format!("{FOLDER}-{mark:08x}"));
        let daemon = Self { dir, _user: user };
        if !daemon.answers() {
            daemon.start(&locks.join("dockerd.users"));
        }
        let imported = daemon.dir.join("imported");
        if !imported.exists() {
            daemon.import();
            fs::write(imported, "").unwrap();
        }
        Some(daemon)
    }

    /// What the backend is told of it.
    pub fn means(&self) -> DockerMeans {
        DockerMeans { host: Some(format!("unix://{}", self.socket().display())), image: IMAGE.to_owned() }
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A daemon of a test's own, which may be ended: what it takes to start it.
    pub fn command(dir: &Path) -> Command {
        let mut daemon = Command::new("dockerd");
        let of = |name: &str| dir.join(name).display().to_string();
        daemon.args(["--host", &format!("unix://{}", of("docker.sock"))]);
        for (flag, name) in [("--data-root", "data"), ("--exec-root", "exec"), ("--pidfile", "pid")] {
            daemon.args([flag, &of(name)]);
        }
        daemon.args(["--iptables=false", "--ip-forward=false", "--ip-masq=false", "--bridge=none"]);
        daemon.arg("--userland-proxy=false");
        daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(dir.join("log")).unwrap());
        daemon
    }

    /// Removes the folder of one that has ended.
    pub fn clear(dir: &Path) {
        let clear = Command::new("bash").args(["-c", CLEAR, "clear"]).arg(dir).status();
        assert!(clear.unwrap().success());
    }

    /// One that is there, in a folder, with its image.
    pub fn at(dir: &Path) -> Self {
        let daemon = Self { dir: dir.to_owned(), _user: File::open("/dev/null").unwrap() };
        let began = Instant::now();
        while !daemon.answers() {
            let log = || fs::read_to_string(dir.join("log")).unwrap_or_default();
            assert!(began.elapsed() < Duration::from_secs(60), "the daemon does not start:\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        if !dir.join("imported").exists() {
            daemon.import();
            fs::write(dir.join("imported"), "").unwrap();
        }
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.dir.join("docker.sock")
    }

    fn client(&self) -> Command {
        let mut client = Command::new("docker");
        client.arg("--host").arg(format!("unix://{}", self.socket().display()));
        client
    }

    /// Asks the daemon something as a person does.
    pub fn docker(&self, arguments: &[&str]) -> String {
        let ran = self.client().args(arguments).output().unwrap();
        assert!(ran.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap().trim().to_owned()
    }

    fn answers(&self) -> bool {
        std::os::unix::net::UnixStream::connect(self.socket()).is_ok()
    }

    fn start(&self, users: &Path) {
        // What one that was killed has left: nobody else uses this folder.
        Self::clear(&self.dir);
        fs::create_dir_all(&self.dir).unwrap();
        let beside = Command::new("setsid")
            .args(["--fork", "bash", "-c", BESIDE, "beside"])
            .args([&self.dir, users])
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(beside.unwrap().success());
        let began = Instant::now();
        while !self.answers() {
            let log = || fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            assert!(began.elapsed() < Duration::from_secs(60), "the daemon does not start:\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Gives the daemon its image: the packages without which no Debian is, as they are on this machine.
    fn import(&self) {
        let list = self.dir.join("image");
        let listed = Command::new("bash").args(["-c", LIST, "list"]).arg(&list).status().unwrap();
        assert!(listed.success());
        let mut tar = Command::new("tar")
            .args(["--directory", "/", "--create", "--no-recursion", "--ignore-failed-read", "--files-from"])
            .arg(&list)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let layers = tar.stdout.take().unwrap();
        let import = self.client().args(["import", "-", IMAGE]).stdin(layers).output().unwrap();
        assert!(import.status.success(), "{}", String::from_utf8_lossy(&import.stderr));
        tar.wait().unwrap();
    }
}
