//! Where this process may make groups: what is mounted, where it is in it, and what is handed down to it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{Controller, FOLDER, put};

/// The mounts of a type: root, mount point, and the options of the file system.
fn mounts<'a>(text: &'a str, of: &'a str) -> impl Iterator<Item = (&'a str, &'a str, &'a str)> {
    text.lines().filter_map(move |line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let mut system = system.split(' ');
        let (root, point) = (mount.next()?, mount.next()?);
        (system.next()? == of).then_some((root, point, system.nth(1).unwrap_or("")))
    })
}

/// Where a path of a hierarchy is.
fn place(root: &str, point: &str, path: &str) -> PathBuf {
    let below = Path::new(path).strip_prefix(root).unwrap_or(Path::new(""));
    Path::new(point).join(below)
}

/// Where this process is in version 1, for each controller.
pub(super) fn one(mountinfo: &str, own: &str) -> Vec<(Controller, PathBuf)> {
    let mut found = Vec::new();
    for controller in Controller::ALL {
        let has = |list: &str| list.split(',').any(|name| name == controller.name());
        let mount = mounts(mountinfo, "cgroup").find(|(_, _, options)| has(options));
        let path = own.lines().find_map(|line| {
            let (list, path) = line.split_once(':')?.1.split_once(':')?;
            has(list).then_some(path)
        });
        if let (Some((root, point, _)), Some(path)) = (mount, path) {
            found.push((controller, place(root, point, path)));
        }
    }
    found
}

/// Where this process is in version 2.
pub(super) fn two(mountinfo: &str, own: &str) -> Option<PathBuf> {
    let (root, point, _) = mounts(mountinfo, "cgroup2").next()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(place(root, point, path))
}

pub(super) fn writable(
    own: Vec<(Controller, PathBuf)>,
    instance: &str,
) -> Result<Vec<(Controller, PathBuf)>, String> {
    let mut bases = Vec::new();
    let mut problem = "no controller is mounted".to_owned();
    for (controller, path) in own {
        let base = path.join(FOLDER).join(instance);
        match folder(&base) {
            Ok(()) => bases.push((controller, base)),
            Err(error) => problem = format!("{}: {error}", base.display()),
        }
    }
    let memory = bases.iter().any(|(controller, _)| *controller == Controller::Memory);
    if memory { Ok(bases) } else { Err(problem) }
}

/// Makes a folder with those above it. Somebody else may leave the one above as empty this very moment.
fn folder(path: &Path) -> std::io::Result<()> {
    let mut made = fs::create_dir_all(path);
    for _ in 0..3 {
        if made.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            made = fs::create_dir_all(path);
        }
    }
    made
}

/// Makes the instance's folder in version 2, with the controllers handed down to it.
pub(super) fn handed_down(own: &Path, instance: &str) -> Result<Vec<(Controller, PathBuf)>, String> {
    let read = |path: &Path, name| fs::read_to_string(path.join(name)).unwrap_or_default();
    let there = read(own, "cgroup.controllers");
    let has = |controller: Controller| there.split_whitespace().any(|name| name == controller.name());
    let controllers: Vec<Controller> = Controller::ALL.into_iter().filter(|c| has(*c)).collect();
    if !controllers.contains(&Controller::Memory) {
        return Err(format!("{} has no controller for memory", own.display()));
    }
    let wanted: Vec<String> =
        controllers.iter().map(|controller| format!("+{}", controller.name())).collect();
    let wanted = wanted.join(" ");
    let hand_down = |path: &Path| {
        put(&path.join("cgroup.subtree_control"), &wanted)
            .map_err(|error| format!("{} hands nothing down: {error}", path.display()))
    };
    if hand_down(own).is_err() {
        // A group with processes in it hands nothing down; this one may be alone in it and move.
        let pid = std::process::id().to_string();
        if read(own, "cgroup.procs").split_whitespace().any(|in_it| in_it != pid) {
            return Err(format!("{} has other processes in it", own.display()));
        }
        let leaf = own.join("nylorun-runtime");
        let moved = fs::create_dir_all(&leaf).and_then(|()| put(&leaf.join("cgroup.procs"), &pid));
        moved.map_err(|error| format!("{} cannot be used: {error}", leaf.display()))?;
        hand_down(own)?;
    }
    let folder = own.join(FOLDER);
    let base = folder.join(instance);
    self::folder(&base).map_err(|error| format!("{}: {error}", base.display()))?;
    hand_down(&folder)?;
    hand_down(&base)?;
    Ok(controllers.into_iter().map(|controller| (controller, base.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::super::Version;
    use super::*;
    use crate::sandbox::job::Limits;

    const MOUNTS: &str = "\
30 23 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
";
    const OWN: &str = "4:memory:/docker/abc/child\n3:cpu,cpuacct:/\n0::/user.slice/run\n";

    #[test]
    fn the_group_of_this_process_is_found_where_its_hierarchies_are_mounted() {
        assert_eq!(
            one(MOUNTS, OWN),
            [
                (Controller::Memory, PathBuf::from("/sys/fs/cgroup/memory/child")),
                (Controller::Cpu, PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")),
            ]
        );
        assert_eq!(two(MOUNTS, OWN), Some(PathBuf::from("/sys/fs/cgroup/unified/user.slice/run")));
        assert_eq!((one("", OWN), two("", OWN)), (vec![], None));
    }

    #[test]
    fn version_2_is_used_only_with_the_controller_for_memory_and_has_one_folder() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path();
        fs::write(own.join("cgroup.controllers"), "cpu io pids\n").unwrap();
        assert!(handed_down(own, "i").unwrap_err().contains("memory"));
        fs::write(own.join("cgroup.controllers"), "cpu io memory pids\n").unwrap();
        fs::write(own.join("cgroup.subtree_control"), "").unwrap();
        let base = own.join("nylorun/i");
        fs::create_dir_all(&base).unwrap();
        for path in [base.parent().unwrap(), &base] {
            fs::write(path.join("cgroup.subtree_control"), "").unwrap();
        }
        let bases = handed_down(own, "i").unwrap();
        assert!(bases.len() == 3 && bases.iter().all(|(_, path)| *path == base));
        assert_eq!(fs::read_to_string(base.join("cgroup.subtree_control")).unwrap(), "+memory +pids +cpu");
        let limits = Limits { cpus: 3, memory_bytes: 5, processes: 7, ..Limits::default() };
        let values: Vec<_> =
            bases.iter().flat_map(|(controller, _)| controller.values(Version::Two, &limits)).collect();
        let of =
            |name: &str| values.iter().find(|(file, _, _)| *file == name).map(|(_, value, _)| value.as_str());
        assert_eq!(
            (of("memory.max"), of("pids.max"), of("cpu.max")),
            (Some("5"), Some("8"), Some("300000 100000"))
        );
    }
}
