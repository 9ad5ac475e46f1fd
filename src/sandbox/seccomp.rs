//! The filter over system calls inside a cage: what opens ways into the kernel or out of the namespaces is refused.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    apply_filter,
};

/// Refused with EPERM whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fanotify_init,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_personality,
];

/// Namespaces, as flags of `clone`.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Families of sockets that no network namespace keeps apart: the machine's host, the kernel's cryptography.
const FAMILIES: [libc::c_int; 2] = [libc::AF_VSOCK, libc::AF_ALG];

/// Applies the filter to this process and all that it starts. Privileges must have been given up for good.
///
/// # Errors
/// In words.
pub fn apply() -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| format!("system calls cannot be filtered: {error}");
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| told(&error))?;
    let equals = |argument, value: u64| {
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
        condition.and_then(|condition| SeccompRule::new(vec![condition]))
    };
    let has = |argument, bits: u64| {
        let op = SeccompCmpOp::MaskedEq(bits);
        let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, op, bits);
        condition.and_then(|condition| SeccompRule::new(vec![condition]))
    };
    let number = |value: libc::c_int| u64::from(value.cast_unsigned());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let clone = NAMESPACES.iter().map(|flag| has(0, number(*flag))).collect::<Result<_, _>>();
    rules.insert(libc::SYS_clone, clone.map_err(|error| told(&error))?);
    let families = FAMILIES.iter().map(|family| equals(0, number(*family))).collect::<Result<_, _>>();
    rules.insert(libc::SYS_socket, families.map_err(|error| told(&error))?);
    // Keystrokes for whoever has the terminal.
    let keystroke = equals(1, libc::TIOCSTI).map_err(|error| told(&error))?;
    rules.insert(libc::SYS_ioctl, vec![keystroke]);
    let refuse = |rules, errno: libc::c_int| {
        let action = SeccompAction::Errno(errno.cast_unsigned());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch);
        let program: seccompiler::BpfProgram =
            filter.and_then(TryInto::try_into).map_err(|error| told(&error))?;
        apply_filter(&program).map_err(|error| told(&error))
    };
    refuse(rules, libc::EPERM)?;
    // Its flags are out of a filter's sight; who calls it falls back to `clone` when it is told that there is none.
    refuse(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)
}
