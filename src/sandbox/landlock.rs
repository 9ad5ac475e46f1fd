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
    PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus,
    Scope,
};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_no_new_privs;
use nix::unistd::Uid;

use super::namespaces;
use super::seccomp::Filters;
use super::system::{DEVICES, ETC, SYSTEM};

/// What is needed: signals and abstract sockets are kept in since this one, TCP since 4, all changes of files since 3.
const NEEDED: ABI = ABI::V6;

/// Where root's helpers show a workspace: anybody may walk there.
const SHOWN: &str = "/tmp";

/// How everything is mounted that is ours.
const PLAIN: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// What `/proc` says of the machine. Nothing in here is about a process.
const PROC: [&str; 7] = ["cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems"];

fn told<E: std::fmt::Display>(what: impl Into<String>) -> impl Fn(E) -> String {
    let what = what.into();
    move |error| format!("{what}: {error}")
}

/// Makes room for showing a workspace to this process and its children alone: the user whom a helper of root becomes may
/// not walk to root's folders. An ordinary user's helpers find them where they are.
///
/// # Errors
/// In words: root may not do so here.
pub fn hide() -> Result<(), String> {
    unshare(CloneFlags::CLONE_NEWNS).map_err(told(
        "root may not mount here, and its helpers cannot walk to the workspace; run as an ordinary user",
    ))?;
    namespaces::keep_apart()?;
    mount(Some("sandbox"), SHOWN, Some("tmpfs"), PLAIN, Some("mode=755,size=64k,nr_inodes=16"))
        .map_err(told("the workspace cannot be shown"))?;
    ["workspace", "tmp"].into_iter().try_for_each(|name| {
        fs::create_dir(Path::new(SHOWN).join(name)).map_err(told("the workspace cannot be shown"))
    })
}

/// Shows a workspace there. This process is in the folder of all of them.
///
/// # Errors
/// In words.
pub fn show(folder: &str) -> Result<(), String> {
    let none = None::<&str>;
    for name in ["workspace", "tmp"] {
        let (from, to) = (Path::new(folder).join(name), Path::new(SHOWN).join(name));
        mount(Some(&from), &to, none, MsFlags::MS_BIND, none).map_err(told("the workspace is not there"))?;
        mount(none, &to, none, PLAIN | MsFlags::MS_BIND | MsFlags::MS_REMOUNT, none)
            .map_err(told("the workspace cannot be shown"))?;
    }
    Ok(())
}

/// What the cage allows, to which its workspace is still to be added.
pub struct Rules {
    rules: RulesetCreated,
    /// The user has files and processes outside of the cage.
    shared: bool,
}

/// Becomes somebody without rights, where this is root, has system calls refused, and allows what every workspace may.
///
/// # Errors
/// In words: what this kernel does not have.
pub fn begin(host_uid: u32, filters: &Filters) -> Result<Rules, String> {
    let shared = !Uid::effective().is_root();
    if !shared {
        namespaces::become_user(host_uid)?;
    }
    // Nothing that is still to be done is refused by them.
    set_no_new_privs().map_err(told("privileges cannot be given up"))?;
    if shared {
        filters.landlock_shared.apply()?
    } else {
        filters.landlock.apply()?
    }
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))
        .and_then(|rules| rules.handle_access(AccessNet::from_all(NEEDED)))
        .and_then(|rules| rules.scope(Scope::from_all(NEEDED)))
        .and_then(Ruleset::create)
        .map_err(told("this kernel does not have Landlock with ABI 6"))?;
    let mut rules = Rules { rules, shared };
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    for name in SYSTEM {
        rules.allow(&Path::new("/").join(name), read | AccessFs::Execute)?;
    }
    for name in ETC {
        rules.allow(&Path::new("/etc").join(name), read)?;
    }
    for name in DEVICES {
        rules.allow(&Path::new("/dev").join(name), AccessFs::ReadFile | AccessFs::WriteFile)?;
    }
    for name in PROC {
        rules.allow(&Path::new("/proc").join(name), AccessFs::ReadFile.into())?;
    }
    Ok(rules)
}

impl Rules {
    /// Where the workspace and its temporary folder are shown, if they are not found where they are.
    #[must_use]
    pub fn shown(&self) -> Option<(PathBuf, PathBuf)> {
        let shown = |name: &str| Path::new(SHOWN).join(name);
        (!self.shared).then(|| (shown("workspace"), shown("tmp")))
    }

    fn allow(&mut self, path: &Path, access: BitFlags<AccessFs>) -> Result<(), String> {
        // What is not there needs no rule.
        let Ok(opened) = PathFd::new(path) else { return Ok(()) };
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(NEEDED) };
        let rule = PathBeneath::new(opened, access);
        let allowed = (&mut self.rules).add_rule(rule).map(|_| ());
        allowed.map_err(told(format!("{} cannot be allowed", path.display())))
    }

    /// Closes the cage around this process for good. The version of what the kernel has.
    ///
    /// # Errors
    /// In words.
    pub fn restrict(mut self, workspace: &Path, tmp: &Path) -> Result<String, String> {
        let made = AccessFs::MakeChar | AccessFs::MakeBlock;
        for path in [workspace, tmp] {
            self.allow(path, AccessFs::from_all(NEEDED) & !made)?;
        }
        let status = self.rules.restrict_self().map_err(told("Landlock cannot be applied"))?;
        if status.ruleset != RulesetStatus::FullyEnforced {
            return Err("Landlock does not enforce all of the rules here".to_owned());
        }
        Ok(match status.landlock {
            LandlockStatus::Available { effective_abi, kernel_abi } => {
                format!("ABI {}", kernel_abi.unwrap_or(effective_abi as i32))
            }
            _ => "ABI unknown".to_owned(),
        })
    }
}
