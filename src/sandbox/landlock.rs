//! The cage of Landlock: no namespaces of its own; the kernel refuses to open whatever is not the workspace, its temporary
//! folder, or the system, and to connect or send signals to whatever is not in the cage.
//!
//! | | |
//! |---|---|
//! | read and write | the workspace, its temporary folder, `/dev/null` and its like |
//! | read and execute | `/usr` and what leads there, a few files of `/etc` |
//! | read | what `/proc` says of the machine, not of its processes |
//! | no | everything else; sockets of every kind; signals to, and memory of, processes outside |
//!
//! Landlock does not hide: a command may still ask whether a path exists and how large a file is, where the rights of
//! files let it. A helper of root becomes a user whom nobody else is, so that those rights say no wherever it matters. An
//! ordinary user's helper stays that user, so calls that change what Landlock does not guard are refused to it altogether:
//! modes, owners, times and attributes by path (`chmod` fails), and what bothers other processes of the user.

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use nix::unistd::Uid;
use std::os::fd::AsRawFd as _;

use super::namespaces::{self, DEVICES, ETC, SYSTEM};
use super::seccomp::Filters;

/// What is needed: signals and abstract sockets are kept in since this one, TCP since 4, all changes of files since 3.
const NEEDED: ABI = ABI::V6;

/// Where root's helpers show a workspace: anybody may walk there.
const SHOWN: &str = "/tmp";

/// What `/proc` says of the machine. Nothing in here is about a process.
const PROC: [&str; 7] = ["cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems"];

fn told<E: std::fmt::Display>(what: impl Into<String>) -> impl Fn(E) -> String {
    let what = what.into();
    move |error| format!("{what}: {error}")
}

/// The workspace and its temporary folder where the one in the cage can walk. An ordinary user's are where they are. The
/// user whom a helper of root becomes may not walk to root's folders: they are shown elsewhere, to this process alone.
///
/// # Errors
/// In words: root may not do so here.
pub fn show(folder: &Path) -> Result<(PathBuf, PathBuf), String> {
    if !Uid::effective().is_root() {
        return Ok((folder.join("workspace"), folder.join("tmp")));
    }
    let none = None::<&str>;
    let directory = |name: &str| {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        open(&folder.join(name), flags, Mode::empty()).map_err(told("the workspace is not there"))
    };
    unshare(CloneFlags::CLONE_NEWNS).map_err(told(
        "root may not mount here, and its helpers cannot walk to the workspace; run as an ordinary user",
    ))?;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(told("mounts cannot be kept apart"))?;
    // Opened in the namespace that they are mounted in.
    let directories = [("workspace", directory("workspace")?), ("tmp", directory("tmp")?)];
    let plain = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("sandbox"), SHOWN, Some("tmpfs"), plain, Some("mode=755,size=64k,nr_inodes=16"))
        .map_err(told("the workspace cannot be shown"))?;
    for (name, from) in directories {
        let to = Path::new(SHOWN).join(name);
        fs::create_dir(&to).map_err(told("the workspace cannot be shown"))?;
        let from = format!("/proc/self/fd/{}", from.as_raw_fd());
        mount(Some(from.as_str()), &to, none, MsFlags::MS_BIND, none)
            .map_err(told("the workspace cannot be shown"))?;
        mount(none, &to, none, plain | MsFlags::MS_BIND | MsFlags::MS_REMOUNT, none)
            .map_err(told("the workspace cannot be shown"))?;
    }
    Ok((Path::new(SHOWN).join("workspace"), Path::new(SHOWN).join("tmp")))
}

/// Builds the cage around this process, and gives up for good what could undo it. The version of what the kernel has.
///
/// # Errors
/// In words: what this kernel does not have.
pub fn restrict(host_uid: u32, workspace: &Path, tmp: &Path, filters: &Filters) -> Result<String, String> {
    let shared = !Uid::effective().is_root();
    if !shared {
        namespaces::become_user(host_uid)?;
    }
    let files = AccessFs::from_all(NEEDED);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(files)
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEEDED)))
        .and_then(|rules| rules.scope(Scope::from_all(NEEDED)))
        .and_then(Ruleset::create)
        .map_err(told("this kernel does not have Landlock with ABI 6"))?;
    let mut allow = |path: &Path, access: BitFlags<AccessFs>| {
        // What is not there needs no rule.
        let Ok(opened) = PathFd::new(path) else { return Ok(()) };
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEEDED) };
        let rule = PathBeneath::new(opened, access);
        (&mut rules).add_rule(rule).map(|_| ()).map_err(told(format!("{} cannot be allowed", path.display())))
    };
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let made = AccessFs::MakeChar | AccessFs::MakeBlock;
    for path in [workspace, tmp] {
        allow(path, files & !made)?;
    }
    for name in SYSTEM {
        allow(&Path::new("/").join(name), read | AccessFs::Execute)?;
    }
    for name in ETC {
        allow(&Path::new("/etc").join(name), read)?;
    }
    for name in DEVICES {
        allow(&Path::new("/dev").join(name), AccessFs::ReadFile | AccessFs::WriteFile)?;
    }
    for name in PROC {
        allow(&Path::new("/proc").join(name), AccessFs::ReadFile.into())?;
    }
    let status = rules.restrict_self().map_err(told("Landlock cannot be applied"))?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err("Landlock does not enforce all of the rules here".to_owned());
    }
    if shared {
        filters.landlock_shared.apply()?
    } else {
        filters.landlock.apply()?
    }
    Ok(match status.landlock {
        LandlockStatus::Available { effective_abi, kernel_abi } => {
            format!("ABI {}", kernel_abi.unwrap_or(effective_abi as i32))
        }
        _ => "ABI unknown".to_owned(),
    })
}
