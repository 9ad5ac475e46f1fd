//! The cage of namespaces: user, mounts, processes, network, IPC and host name of its own; the system read-only, nothing
//! of the host's files but that and the workspace; system calls that open ways out refused.
//!
//! | From outside | Inside |
//! |---|---|
//! | `<key>/workspace`, `<key>/tmp` | `/workspace`, `/tmp`, writable |
//! | `/usr` and what leads there, a few files of `/etc` | read-only |
//! | a few devices | `/dev/null` and its like |
//! | nothing else | user 1000, process 1, an empty network |
//!
//! All but the workspace is put together before it is known which one it will be. All of it is done by an ordinary user: a helper of root becomes one first, so that a hole in here is none into root.

use std::fs;
use std::io::Write as _;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::Path;

use nix::libc;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::{set_dumpable, set_no_new_privs, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, send, socket};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{Gid, Uid, chdir, getegid, geteuid, pivot_root, sethostname, setresgid, setresuid};

use super::seccomp::Filters;
use super::system::{DEVICES, ETC, SYSTEM};

/// Where the new system is put together. It becomes `/`.
const ROOT: &str = "/tmp";

/// Who runs in the cage.
const USER: u32 = 1_000;

fn told<E: std::fmt::Display>(what: impl Into<String>) -> impl Fn(E) -> String {
    let what = what.into();
    move |error| format!("{what}: {error}")
}

/// Becomes a user without any right on the host.
///
/// # Errors
/// In words.
pub fn become_user(uid: u32) -> Result<(), String> {
    nix::unistd::setgroups(&[]).map_err(told("groups cannot be given up"))?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
    setresgid(gid, gid, gid).map_err(told("the group cannot be given up"))?;
    setresuid(uid, uid, uid).map_err(told("root cannot be given up"))?;
    // It must still write its own maps.
    set_dumpable(true).map_err(told("maps cannot be written"))
}

/// Makes the namespaces. The next child is process 1 in them.
///
/// # Errors
/// In words: this system does not let ordinary users have them.
pub fn enter() -> Result<(), String> {
    let (uid, gid) = (geteuid(), getegid());
    let all = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    unshare(all).map_err(told("namespaces are not available"))?;
    map(0, uid.as_raw(), gid.as_raw())
}

fn map(inside: u32, uid: u32, gid: u32) -> Result<(), String> {
    let write =
        |path: &str, text: String| fs::write(path, text).map_err(told(format!("{path} cannot be written")));
    write("/proc/self/setgroups", "deny".into())?;
    write("/proc/self/uid_map", format!("{inside} {uid} 1"))?;
    write("/proc/self/gid_map", format!("{inside} {gid} 1"))
}

/// Dies when the one that started it does.
///
/// # Errors
/// In words.
pub fn die_with_parent() -> Result<(), String> {
    set_pdeathsig(Signal::SIGKILL).map_err(told("the end of the parent cannot be watched"))
}

/// Puts the system together beside the one that there is.
///
/// # Errors
/// In words.
pub fn begin() -> Result<(), String> {
    keep_apart()?;
    let none = None::<&str>;
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("sandbox"), ROOT, Some("tmpfs"), plain, Some("mode=755,size=4m,nr_inodes=4096"))
        .map_err(told("a new root cannot be mounted"))?;
    let folder =
        |name: &str| fs::create_dir_all(inside(name)).map_err(told(format!("/{name} cannot be made")));
    for name in ["usr", "etc/ssl", "proc", "dev/shm", "tmp", "workspace", "var/tmp", "run", "root", "home"] {
        folder(name)?;
    }
    for name in SYSTEM {
        let host = Path::new("/").join(name);
        match fs::symlink_metadata(&host) {
            Ok(meta) if meta.is_symlink() => {
                let target = fs::read_link(&host).map_err(told("a system link cannot be read"))?;
                symlink(target, inside(name)).map_err(told("a system link cannot be made"))?;
            }
            Ok(meta) if meta.is_dir() => {
                folder(name)?;
                bind(&format!("/{name}"), name, true)?;
            }
            _ => {}
        }
    }
    for name in ETC {
        show(&format!("/etc/{name}"), &format!("etc/{name}"))?;
    }
    for (name, text) in [
        ("passwd", format!("root:x:0:0:root:/root:/bin/sh\nsandbox:x:{USER}:{USER}::/workspace:/bin/sh\n")),
        ("group", format!("root:x:0:\nsandbox:x:{USER}:\n")),
        ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n".to_owned()),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".to_owned()),
        ("resolv.conf", String::new()),
        ("hostname", "sandbox\n".to_owned()),
    ] {
        fs::write(inside(&format!("etc/{name}")), text).map_err(told("/etc cannot be written"))?;
    }
    for name in DEVICES {
        fs::write(inside(&format!("dev/{name}")), "").map_err(told("/dev cannot be made"))?;
        bind(&format!("/dev/{name}"), &format!("dev/{name}"), false)?;
    }
    for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        symlink(format!("/proc/self/{target}"), inside(&format!("dev/{name}")))
            .map_err(told("/dev cannot be made"))?;
    }
    mount(
        Some("shm"),
        inside("dev/shm").as_str(),
        Some("tmpfs"),
        plain,
        Some("mode=1777,size=64m,nr_inodes=8192"),
    )
    .map_err(told("/dev/shm cannot be mounted"))?;
    let proc = plain | MsFlags::MS_NOEXEC;
    mount(Some("proc"), inside("proc").as_str(), Some("proc"), proc, none)
        .map_err(told("/proc cannot be mounted"))?;
    // Memory of messages and segments is no process's: 64 MiB as in /dev/shm, and a few queues. An older kernel says no.
    for (name, most) in [("shmall", "16384"), ("msgmni", "256")] {
        let _ = fs::write(inside(&format!("proc/sys/kernel/{name}")), most);
    }
    sethostname("sandbox").map_err(told("the host name cannot be set"))?;
    loopback()
}

/// Mounts of this namespace are not seen outside of it; those outside are, and what is unmounted there goes here, too.
///
/// # Errors
/// In words.
pub fn keep_apart() -> Result<(), String> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_SLAVE, none)
        .map_err(told("mounts cannot be kept apart"))
}

/// Adds a workspace to the system and makes it the only one there is.
///
/// # Errors
/// In words.
pub fn complete(workspace: &OwnedFd, tmp: &OwnedFd) -> Result<(), String> {
    let none = None::<&str>;
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    for (fd, name) in [(workspace, "workspace"), (tmp, "tmp")] {
        bind(&format!("/proc/self/fd/{}", fd.as_raw_fd()), name, false)?;
        restrict(name, plain)?;
    }
    // The new root goes where the old one is, and the old one goes.
    chdir(ROOT).map_err(told("the new root cannot be entered"))?;
    pivot_root(".", ".").map_err(told("the root cannot be changed"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(told("the old root cannot be left"))?;
    chdir("/").map_err(told("the new root cannot be entered"))?;
    let sealed = plain | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(none, "/", none, sealed, none).map_err(told("the new root cannot be sealed"))
}

fn inside(name: &str) -> String {
    format!("{ROOT}/{name}")
}

/// Shows a file or folder of the host read-only, if it is there and may be read.
fn show(host: &str, name: &str) -> Result<(), String> {
    let Ok(meta) = fs::metadata(host) else { return Ok(()) };
    if meta.is_dir() {
        if fs::read_dir(host).is_err() {
            return Ok(());
        }
        fs::create_dir_all(inside(name)).map_err(told(format!("/{name} cannot be made")))?;
    } else {
        if fs::File::open(host).is_err() {
            return Ok(());
        }
        fs::write(inside(name), "").map_err(told(format!("/{name} cannot be made")))?;
    }
    bind(host, name, true)
}

fn bind(host: &str, name: &str, read_only: bool) -> Result<(), String> {
    let none = None::<&str>;
    mount(Some(host), inside(name).as_str(), none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
        .map_err(told(format!("/{name} cannot be mounted")))?;
    if read_only {
        restrict(name, MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV)
    } else {
        Ok(())
    }
}

/// Adds flags to a mount; those that it has are kept, as the kernel demands.
fn restrict(name: &str, flags: MsFlags) -> Result<(), String> {
    let none = None::<&str>;
    let has = statvfs(inside(name).as_str()).map_err(told(format!("/{name} cannot be looked at")))?.flags();
    let mut all = flags | MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
    for (set, flag) in [
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ] {
        if has.contains(set) {
            all |= flag;
        }
    }
    mount(none, inside(name).as_str(), none, all, none).map_err(told(format!("/{name} cannot be restricted")))
}

/// Brings up the loopback device: programs speak to themselves over it.
fn loopback() -> Result<(), String> {
    let route =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)
            .map_err(told("the network cannot be set up"))?;
    let up = u32::try_from(libc::IFF_UP).unwrap_or(1);
    let mut message = Vec::with_capacity(32);
    // nlmsghdr: length, type, flags, sequence, port; then ifinfomsg: family, pad, type, index, flags, change.
    message.write_all(&32_u32.to_ne_bytes()).map_err(told("memory"))?;
    message.extend_from_slice(&libc::RTM_NEWLINK.to_ne_bytes());
    message.extend_from_slice(&u16::try_from(libc::NLM_F_REQUEST).unwrap_or(1).to_ne_bytes());
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&[0; 4]);
    // The loopback device is the first of every network namespace.
    message.extend_from_slice(&1_i32.to_ne_bytes());
    message.extend_from_slice(&up.to_ne_bytes());
    message.extend_from_slice(&up.to_ne_bytes());
    send(route.as_raw_fd(), &message, MsgFlags::empty())
        .map(|_| ())
        .map_err(told("the network cannot be set up"))
}

/// Becomes an ordinary user in a namespace that owns nothing, and may never become more.
///
/// # Errors
/// In words.
pub fn give_up(filters: &Filters) -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWUSER).map_err(told("the last namespace is not available"))?;
    map(USER, 0, 0)?;
    // A command is the same user in here: it is not to look into this process, nor to take its descriptors.
    set_dumpable(false).map_err(told("memory cannot be closed"))?;
    set_no_new_privs().map_err(told("privileges cannot be given up"))?;
    filters.namespaces.apply()
}
