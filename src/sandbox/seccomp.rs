//! The filters over system calls inside cages: what opens ways into the kernel or out of the namespaces is refused.

use std::collections::BTreeMap;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter, sock_filter,
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
    libc::SYS_kexec_file_load,
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

/// What every cage refuses, whatever the arguments. A container's filter allows none of it.
#[must_use]
pub fn refused() -> &'static [libc::c_long] {
    REFUSED
}

/// Namespaces, as flags of `clone`.
pub(super) const NAMESPACES: [libc::c_int; 7] = [
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

/// Calls that only a cage without namespaces refuses: it has no processes, IPC or network of its own.
const REFUSED_WITHOUT_NAMESPACES: &[libc::c_long] = &[
    libc::SYS_socket,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// Calls that only a cage refuses whose user has files and processes outside of it: Landlock does not guard against them.
const REFUSED_TO_A_USER_OF_THE_HOST: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chmod,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_chown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lchown,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_utimes,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_futimesat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_inotify_init,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    SETXATTRAT,
    REMOVEXATTRAT,
    FILE_SETATTR,
    libc::SYS_inotify_init1,
];

/// Numbers that all architectures share and that the library does not name yet.
const FCHMODAT2: libc::c_long = 452;
const SETXATTRAT: libc::c_long = 463;
const REMOVEXATTRAT: libc::c_long = 466;
const FILE_SETATTR: libc::c_long = 469;

/// Calls that name a process first. Without a process namespace only the caller may be meant, which is 0.
const OF_A_PROCESS: &[libc::c_long] = &[
    libc::SYS_prlimit64,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
];

/// Calls of x86-64 with 32-bit pointers have this bit set, whatever they are; a filter of numbers would let all through.
const X32: u32 = 0x4000_0000;

/// What is refused in one kind of cage, ready to be applied.
pub struct Filter(Vec<BpfProgram>);

/// The filters, made once for all cages.
pub struct Filters {
    /// In namespaces.
    pub namespaces: Filter,
    /// With Landlock, as a user whom nobody else is.
    pub landlock: Filter,
    /// With Landlock, as the user who runs the Runtime.
    pub landlock_shared: Filter,
}

impl Filters {
    /// Makes them.
    ///
    /// # Errors
    /// In words.
    pub fn compile() -> Result<Self, String> {
        let without = REFUSED_WITHOUT_NAMESPACES;
        Ok(Self {
            namespaces: Filter::compile(&[])?,
            landlock: Filter::compile(&[without])?,
            landlock_shared: Filter::compile(&[without, REFUSED_TO_A_USER_OF_THE_HOST])?,
        })
    }
}

impl Filter {
    fn compile(more: &[&[libc::c_long]]) -> Result<Self, String> {
        let told = |error: seccompiler::BackendError| format!("system calls cannot be filtered: {error}");
        let is = |argument, length, op, value: u64| {
            SeccompCondition::new(argument, length, op, value)
                .and_then(|condition| SeccompRule::new(vec![condition]))
                .map_err(told)
        };
        let number = |value: libc::c_int| u64::from(value.cast_unsigned());
        let equals = |argument, value| is(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
        let differs = |argument, value| is(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value);
        let has = |bits| is(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(bits), bits);

        let refused = more.iter().copied().chain([REFUSED]).flatten();
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = refused.map(|call| (*call, Vec::new())).collect();
        let clone: Result<_, String> = NAMESPACES.iter().map(|flag| has(number(*flag))).collect();
        rules.insert(libc::SYS_clone, clone?);
        let families: Result<_, String> = FAMILIES.iter().map(|family| equals(0, number(*family))).collect();
        // Refused altogether where there is no network namespace.
        rules.entry(libc::SYS_socket).or_insert(families?);
        // Keystrokes for whoever has the terminal.
        rules.insert(libc::SYS_ioctl, vec![equals(1, libc::TIOCSTI)?]);
        if !more.is_empty() {
            for call in OF_A_PROCESS {
                rules.insert(*call, vec![differs(0, 0)?]);
            }
            for call in [libc::SYS_setpriority, libc::SYS_ioprio_set] {
                // 0 and 1 are what "a process" is called in the two.
                let process = u64::from(call == libc::SYS_ioprio_set);
                rules.insert(call, vec![differs(0, process)?, differs(1, 0)?]);
            }
        }
        if more.contains(&REFUSED_TO_A_USER_OF_THE_HOST) {
            // Times of a path; those of an open file have no path.
            rules.insert(libc::SYS_utimensat, vec![is(1, SeccompCmpArgLen::Qword, SeccompCmpOp::Ne, 0)?]);
        }
        // The flags of `clone3` are out of a filter's sight; who calls it falls back to `clone` when there is none.
        let none = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        Ok(Self(vec![program(rules, libc::EPERM)?, program(none, libc::ENOSYS)?]))
    }

    /// Applies it to this process and all that it starts. Privileges must have been given up for good.
    ///
    /// # Errors
    /// In words.
    pub fn apply(&self) -> Result<(), String> {
        let told = |error| format!("system calls cannot be filtered: {error}");
        self.0.iter().try_for_each(|program| apply_filter(program).map_err(told))
    }
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: libc::c_int) -> Result<BpfProgram, String> {
    let told = |error: seccompiler::BackendError| format!("system calls cannot be filtered: {error}");
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(told)?;
    let action = SeccompAction::Errno(errno.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, arch).map_err(told)?;
    let program: BpfProgram = filter.try_into().map_err(told)?;
    Ok(if cfg!(target_arch = "x86_64") { refuse_x32(program) } else { program })
}

/// Puts before a program that calls with 32-bit pointers do not exist.
fn refuse_x32(program: BpfProgram) -> BpfProgram {
    let instruction =
        |code: u32, jt, jf, k| sock_filter { code: u16::try_from(code).unwrap_or(0), jt, jf, k };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();
    let mut whole = vec![
        // The number of the call is the first word.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, X32),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, refuse),
    ];
    whole.extend(program);
    whole
}
