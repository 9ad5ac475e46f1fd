//! The filter over system calls in a container: what programs need is allowed by name, everything else is refused,
//! whatever the daemon's own filter says (spec: sandbox, section 12).
//!
//! Daemons have filters of their own, which differ with their version: that of Docker 20.10 lets through the machine's
//! host (`AF_VSOCK`), the kernel's cryptography (`AF_ALG`) and `io_uring`. Ours is the same everywhere, and allows nothing
//! that the [cages](crate::sandbox::seccomp) refuse. Names that a daemon's library does not know are passed over by it;
//! calls that are newer than all of them come back as not implemented, which programs are used to.

use nix::libc;
use serde_json::{Value, json};

use crate::sandbox::seccomp::{NAMESPACES, refused};

/// Calls by their names in the library, with their numbers.
macro_rules! calls {
    ($($call:ident)*) => { &[$((stringify!($call), libc::$call)),*] };
}

type Calls = &'static [(&'static str, libc::c_long)];

/// Files, directories, and what is waited for with them.
const FILES: Calls = calls! {
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2
    SYS_openat SYS_openat2 SYS_close SYS_close_range SYS_lseek SYS_fcntl SYS_flock SYS_dup SYS_dup3 SYS_pipe2
    SYS_sendfile SYS_splice SYS_tee SYS_vmsplice SYS_copy_file_range SYS_readahead SYS_fadvise64
    SYS_fallocate SYS_truncate SYS_ftruncate SYS_sync SYS_syncfs SYS_fsync SYS_fdatasync
    SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs SYS_faccessat SYS_faccessat2 SYS_getdents64
    SYS_readlinkat SYS_linkat SYS_symlinkat SYS_unlinkat SYS_renameat2 SYS_mkdirat SYS_mknodat
    SYS_chdir SYS_fchdir SYS_getcwd SYS_umask SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_utimensat
    SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_setxattr SYS_lsetxattr SYS_fsetxattr
    SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_removexattr SYS_lremovexattr SYS_fremovexattr
    SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch SYS_eventfd2 SYS_signalfd4
    SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_ppoll SYS_pselect6
    SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime
    SYS_io_setup SYS_io_destroy SYS_io_submit SYS_io_cancel SYS_io_getevents
};

/// Memory.
const MEMORY: Calls = calls! {
    SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_msync SYS_mincore SYS_brk SYS_remap_file_pages
    SYS_mlock SYS_mlock2 SYS_mlockall SYS_munlock SYS_munlockall SYS_membarrier SYS_memfd_create SYS_memfd_secret
    SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_mseal
};

/// Processes, threads, signals, users, time. The processes are those of the container, the users have no rights.
const PROCESSES: Calls = calls! {
    SYS_execve SYS_execveat SYS_exit SYS_exit_group SYS_wait4 SYS_waitid SYS_set_tid_address SYS_restart_syscall
    SYS_kill SYS_tkill SYS_tgkill SYS_pidfd_open SYS_pidfd_send_signal SYS_pidfd_getfd
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigpending SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo SYS_sigaltstack
    SYS_futex SYS_futex_waitv SYS_set_robust_list SYS_get_robust_list SYS_rseq
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_process_madvise SYS_process_mrelease
    SYS_getpid SYS_getppid SYS_gettid SYS_getpgid SYS_setpgid SYS_getsid SYS_setsid
    SYS_getuid SYS_geteuid SYS_getresuid SYS_setuid SYS_setreuid SYS_setresuid SYS_setfsuid
    SYS_getgid SYS_getegid SYS_getresgid SYS_setgid SYS_setregid SYS_setresgid SYS_setfsgid
    SYS_getgroups SYS_setgroups SYS_capget SYS_capset SYS_prctl SYS_seccomp
    SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self
    SYS_sched_yield SYS_sched_getaffinity SYS_sched_setaffinity SYS_sched_getparam SYS_sched_setparam
    SYS_sched_getscheduler SYS_sched_setscheduler SYS_sched_getattr SYS_sched_setattr SYS_sched_rr_get_interval
    SYS_sched_get_priority_max SYS_sched_get_priority_min
    SYS_getpriority SYS_setpriority SYS_ioprio_get SYS_ioprio_set SYS_prlimit64 SYS_getrusage SYS_getcpu
    SYS_times SYS_gettimeofday SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep
    SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_getoverrun
    SYS_timer_delete SYS_uname SYS_sysinfo SYS_getrandom
};

/// What processes of a container say to each other, and to its network.
const MESSAGES: Calls = calls! {
    SYS_connect SYS_bind SYS_listen SYS_accept SYS_accept4 SYS_shutdown SYS_getsockname SYS_getpeername
    SYS_getsockopt SYS_setsockopt SYS_sendto SYS_sendmsg SYS_sendmmsg SYS_recvfrom SYS_recvmsg SYS_recvmmsg
    SYS_shmget SYS_shmat SYS_shmctl SYS_shmdt SYS_semget SYS_semop SYS_semtimedop SYS_semctl
    SYS_msgget SYS_msgsnd SYS_msgrcv SYS_msgctl
    SYS_mq_open SYS_mq_unlink SYS_mq_timedsend SYS_mq_timedreceive SYS_mq_notify SYS_mq_getsetattr
};

/// What only this architecture has, or calls by such a number.
#[cfg(target_arch = "x86_64")]
const OF_THE_MACHINE: Calls = calls! {
    SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_poll SYS_select SYS_pipe SYS_dup2 SYS_getdents
    SYS_rename SYS_renameat SYS_mkdir SYS_rmdir SYS_link SYS_unlink SYS_symlink SYS_readlink SYS_mknod
    SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes SYS_futimesat SYS_sync_file_range
    SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_signalfd SYS_inotify_init
    SYS_fork SYS_vfork SYS_pause SYS_alarm SYS_time SYS_getpgrp SYS_getrlimit SYS_setrlimit SYS_arch_prctl
};
/// See above.
#[cfg(target_arch = "aarch64")]
const OF_THE_MACHINE: Calls =
    &[("SYS_renameat", 38), ("SYS_sync_file_range", 84), ("SYS_getrlimit", 163), ("SYS_setrlimit", 164)];

/// Numbers that all architectures share and that the library does not name everywhere.
const NEWER: Calls = &[
    ("SYS_cachestat", 451),
    ("SYS_fchmodat2", 452),
    ("SYS_map_shadow_stack", 453),
    ("SYS_futex_wake", 454),
    ("SYS_futex_wait", 455),
    ("SYS_futex_requeue", 456),
    ("SYS_setxattrat", 463),
    ("SYS_getxattrat", 464),
    ("SYS_listxattrat", 465),
    ("SYS_removexattrat", 466),
];

/// Families of sockets that end in the container. Whatever a kernel learns next is not among them.
const FAMILIES: [libc::c_int; 3] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6];
/// What is asked of the kernel about the container's own network: its devices and addresses, and its sockets.
const ASKED: [libc::c_int; 2] = [libc::NETLINK_ROUTE, libc::NETLINK_SOCK_DIAG];

/// The calls that are allowed whatever their arguments.
fn allowed() -> impl Iterator<Item = &'static str> {
    let all = [FILES, MEMORY, PROCESSES, MESSAGES, OF_THE_MACHINE, NEWER].into_iter().flatten();
    let all = all.filter(|(_, number)| !refused().contains(number));
    all.map(|(name, _)| name.trim_start_matches("SYS_"))
}

/// A call that is allowed when its arguments are these.
fn only_with(call: &str, arguments: &[Value]) -> Value {
    json!({"names": [call], "action": "SCMP_ACT_ALLOW", "args": arguments})
}

fn equals(index: u32, value: libc::c_int) -> Value {
    json!({"index": index, "op": "SCMP_CMP_EQ", "value": value.cast_unsigned()})
}

/// These bits of an argument, and what they have to be.
fn bits(index: u32, mask: u32, are: u32) -> Value {
    json!({"index": index, "op": "SCMP_CMP_MASKED_EQ", "value": mask, "valueTwo": are})
}

/// The filter, in the words that the daemon reads.
pub(super) fn filter() -> String {
    let mut rules = vec![json!({"names": allowed().collect::<Vec<_>>(), "action": "SCMP_ACT_ALLOW"})];
    let namespaces = NAMESPACES.iter().fold(0, |all, flag| all | flag.cast_unsigned());
    rules.push(only_with("clone", &[bits(0, namespaces, 0)]));
    // Its flags are out of a filter's sight; who calls it falls back to `clone` when there is none.
    rules.push(json!({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": libc::ENOSYS}));
    rules.extend(FAMILIES.map(|family| only_with("socket", &[equals(0, family)])));
    rules.extend(ASKED.map(|whom| only_with("socket", &[equals(0, libc::AF_NETLINK), equals(2, whom)])));
    rules.push(only_with("socketpair", &[equals(0, libc::AF_UNIX)]));
    // Not TIOCSTI, which types for whoever has the terminal: some bit is another one. The kernel looks at 32 of them, so
    // a comparison of the whole argument could be got round with the others.
    let typing = u32::try_from(libc::TIOCSTI).unwrap_or(u32::MAX);
    rules.extend((0..u32::BITS).map(|n| only_with("ioctl", &[bits(1, 1 << n, !typing & (1 << n))])));
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": libc::EPERM,
        // Calls of any other kind, as with short pointers, end the process.
        "architectures": [format!("SCMP_ARCH_{}", std::env::consts::ARCH.to_uppercase())],
        "syscalls": rules,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn nothing_that_cages_refuse_is_listed_and_nothing_twice() {
        let all = [FILES, MEMORY, PROCESSES, MESSAGES, OF_THE_MACHINE, NEWER].concat();
        let refused: Vec<_> = all.iter().filter(|(_, number)| refused().contains(number)).collect();
        assert!(refused.is_empty(), "{refused:?}");
        let (names, numbers): (HashSet<_>, HashSet<_>) = all.iter().copied().unzip();
        assert_eq!((names.len(), numbers.len()), (all.len(), all.len()));
        for call in
            [libc::SYS_clone, libc::SYS_clone3, libc::SYS_socket, libc::SYS_socketpair, libc::SYS_ioctl]
        {
            assert!(!numbers.contains(&call), "{call} depends on its arguments");
        }
    }

    /// What a filter makes of an `ioctl`: whether any of its rules fits.
    #[test]
    fn no_ioctl_is_refused_but_the_one_that_types_whatever_its_upper_bits_are() {
        let filter: Value = serde_json::from_str(&filter()).unwrap();
        let rules: Vec<(u64, u64)> = filter["syscalls"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|rule| rule["names"] == json!(["ioctl"]))
            .map(|rule| {
                (rule["args"][0]["value"].as_u64().unwrap(), rule["args"][0]["valueTwo"].as_u64().unwrap())
            })
            .collect();
        let fits = |command: u64| rules.iter().any(|(mask, are)| command & mask == *are);
        assert!(!fits(0x5412) && !fits(0xDEAD_BEEF_0000_5412));
        for command in [0x5401, 0x5413, 0x541C, 0x5411, 0, 0xFFFF_FFFF, 0x1_0000_5410] {
            assert!(fits(command), "{command:x}");
        }
    }

    #[test]
    fn the_flags_of_namespaces_are_all_looked_at() {
        assert!(filter().contains(
            &json!({"index": 0, "op": "SCMP_CMP_MASKED_EQ", "value": 0x7E02_0000, "valueTwo": 0}).to_string()
        ));
    }
}
