//! Fuzz tests of parsers whose input comes from other users' processes and the kernel.

use std::os::unix::ffi::OsStrExt;

use plimsoll_fuzz::mutants;
use procfs::FromRead;
use procfs::process::Stat;

use super::confinement::UserNumbers;
use super::port_owner::{ListenerOwner, listener_in};
use super::{cgroup, oom};

#[test]
fn million_answers_of_netlink() {
    // A `nlmsghdr` and an `inet_diag_msg`, and the error ENOENT with the head of its question.
    let mut found = [88_u32.to_ne_bytes(), [20, 0, 0, 0]].concat();
    found.resize(80, 0);
    found.extend([65534_u32.to_ne_bytes(), 123_456_u32.to_ne_bytes()].concat());
    let mut none =
        [[36_u32.to_ne_bytes(), [2, 0, 0, 0], [0; 4], [0; 4]].concat(), (-2_i32).to_ne_bytes().to_vec()]
            .concat();
    none.extend_from_slice(&found[..16]);
    assert_eq!(listener_in(&found), Some(ListenerOwner { uid: 65534, inode: 123_456, is_open: true }));
    assert_eq!(listener_in(&none), None);
    mutants(&[&found, &none], &[&[20, 0], &[2, 0], &[88, 0, 0, 0], &[0xFE; 4]], |answer| {
        if listener_in(answer).is_some() {
            assert!(answer.len() >= 88 && answer[4..6] == [20, 0], "{answer:?}");
        }
    });
}

#[test]
fn million_names_of_processes_change_no_other_field() {
    let after = "S 7 8 9 34816 4026 4194304 95 0 0 0 0 0 0 0 20 0 1 0 12345 2260992 225 18446744073709551615 \
        1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 1 1 1 1 1 1 1 0\n";
    // The kernel keeps 15 bytes of any kind but zero, and escapes none of them here (`fs/proc/array.c:
    // do_task_stat`).
    mutants(&[b"llama-server", b") Z 1 1 (a", b"a)\n1 (b) X"], &[b") ", b" (", b"\xff", b"))"], |name| {
        let name: Vec<u8> = name.iter().copied().filter(|byte| *byte != 0).take(15).collect();
        let row = [b"4026 (", name.as_slice(), b") ", after.as_bytes()].concat();
        let stat = Stat::from_read(row.as_slice()).unwrap();
        let read = (stat.pid, stat.state, stat.ppid, stat.pgrp, stat.starttime);
        assert_eq!(read, (4026, 'S', 7, 8, 12345), "{}", String::from_utf8_lossy(&row));
    });
}

#[test]
fn million_tables_of_mounts_and_counters() {
    const MOUNTS: &[u8] = b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 shared:7 - ext3 /dev/root rw,errors=continue\n\
        29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n90 1 0:50 / /home/u/\xff rw - fuse.cgroup2 u@h:/ rw,user_id=1000\n";
    const EVENTS: &[u8] = b"low 0\noom 7\noom_kill 3\noom_group_kill 1\n";
    let tokens: [&[u8]; 5] = [b" - ", b"\\040", b"oom_kill ", b"65534:65534:7,44", b":"];
    mutants(&[MOUNTS, EVENTS], &tokens, |bytes| {
        if let Some(place) = cgroup::cgroup_mount(bytes) {
            assert!(memchr::memmem::find(bytes, place.as_os_str().as_bytes()).is_some());
        }
        let text = String::from_utf8_lossy(bytes);
        let _ = oom::counter(&text, "oom_kill");
        for line in text.lines() {
            let _ = line.parse::<UserNumbers>();
        }
    });
}
