//! Tests of a program's surroundings under `plimsoll run`: streams, process group, environment, arguments.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::rig::{library, run, stated};

#[test]
fn stdin_and_stdout_pass_byte_for_byte() {
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let mut child = run(&[], &["cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let written = bytes.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&written).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.stdout == bytes);
}

#[test]
fn a_caller_that_ignores_the_end_of_its_children_learns_how_the_program_ended() {
    let mut command = Command::new("env");
    command.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_plimsoll"), "run", "--", "sh", "-c", "exit 7"]);
    let output = command.env("PLIMSOLL_GUARD_LIBRARY", library()).env("PLIMSOLL_NVML", "").output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", stated(&output).1);
}

#[test]
fn a_limit_of_a_few_files_is_named_with_its_remedy() {
    for limit in [4, 6, 10, 20] {
        let script = format!("ulimit -n {limit}; exec {} run -- true", env!("CARGO_BIN_EXE_plimsoll"));
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("PLIMSOLL_GUARD_LIBRARY", library()).env("PLIMSOLL_NVML", "");
        let output = command.output().unwrap();
        let stderr = stated(&output).1;
        assert_eq!(output.status.code(), Some(125), "{limit}: {stderr}");
        assert!(stderr.contains("cannot open files") && stderr.contains("ulimit -n"), "{limit}: {stderr}");
    }
}

/// A file system may take a folder and an empty file, and no byte.
#[test]
fn pages_lie_where_there_is_room_for_them() {
    let script = format!(
        "mount -t tmpfs -o size=8k none /dev/shm && cat /dev/zero > /dev/shm/full 2>/dev/null; \
         exec {} run -- sh -c 'echo $PLIMSOLL_GUARD_PAGES'",
        env!("CARGO_BIN_EXE_plimsoll")
    );
    let mut command = Command::new("unshare");
    command
        .args(["-rm", "sh", "-c", &script])
        .env("PLIMSOLL_GUARD_LIBRARY", library())
        .env("PLIMSOLL_NVML", "");
    let output = command.output().unwrap();
    let (pages, stderr) = stated(&output);
    assert!(output.status.success(), "{stderr}");
    assert!(pages.contains("plimsoll-guard-") && !pages.starts_with("/dev/shm"), "{pages}");
}

#[test]
fn the_program_stays_in_our_process_group_with_its_own_name_and_arguments() {
    let script = "cut -d' ' -f5 /proc/$PPID/stat /proc/$$/stat; echo \"$0|$1|$#\"";
    let output = run(&[], &["sh", "-c", script, "a b", "", "c"]).output().unwrap();
    let lines: Vec<&str> = stated(&output).0.lines().collect();
    assert_eq!(lines[0], lines[1], "one group");
    assert_eq!(lines[2], "a b||2");
    let output = run(&[], &["cat", "/proc/self/cmdline"]).output().unwrap();
    assert_eq!(output.stdout, b"cat\0/proc/self/cmdline\0");
}

#[test]
fn guard_is_configured_by_the_environment_and_nothing_else_is_changed() {
    let options = [
        "--budget",
        "8GiB",
        "--reuse",
        "--chunk",
        "2MiB",
        "--reclaim",
        "--wait",
        "3",
        "--spill",
        "1GiB",
        "--keep",
        "4KiB",
        "--pool",
        "ours",
        "--on-oom",
        "managed",
        "--hide-vmm",
        "--trace",
        "t/trace",
    ];
    let folder = tempfile::tempdir().unwrap();
    let output = run(&options, &["env"])
        .env("LD_PRELOAD", "")
        .env("LEFT_ALONE", "as it was")
        .current_dir(folder.path())
        .output()
        .unwrap();
    let (stdout, _) = stated(&output);
    let value = |name: &str| {
        let line = stdout.lines().find(|line| line.starts_with(&format!("{name}=")));
        line.map(|line| line[name.len() + 1..].to_owned())
    };
    assert_eq!(value("LD_PRELOAD").unwrap(), library().to_str().unwrap());
    assert_eq!(
        value("PLIMSOLL_GUARD").unwrap(),
        "budget=8589934592 reuse chunk=2097152 reclaim wait=3 spill=1073741824 keep=4096 pool=ours on-oom=managed hide-vmm"
    );
    let trace = folder.path().canonicalize().unwrap().join("t/trace");
    assert_eq!(value("PLIMSOLL_GUARD_TRACE").unwrap(), trace.to_str().unwrap());
    assert_eq!(value("LEFT_ALONE").unwrap(), "as it was");
    assert_eq!(value("CUDA_VISIBLE_DEVICES"), None);
    assert_eq!(value("VK_INSTANCE_LAYERS").unwrap(), "VK_LAYER_PLIMSOLL_guard");
    let pages = value("PLIMSOLL_GUARD_PAGES").unwrap();
    assert!(value("VK_LAYER_PATH").unwrap().starts_with(&format!("{pages}:")));
    assert!(!std::path::Path::new(&pages).exists(), "{pages} is gone");
}

fn two_cards() -> String {
    let gib = 1_u64 << 30;
    let card = |n: u64| {
        json!({"uuid": format!("GPU-0000000{n}-0000-0000-0000-000000000000"), "name": format!("Fake {n}"),
               "total": 24 * gib, "free": 24 * gib, "pci": format!("00000000:0{n}:00.0")})
    };
    Value::from(vec![card(1), card(2)]).to_string()
}

#[test]
fn a_program_sees_only_the_cards_it_was_given_unless_guard_shall_judge() {
    let nvml = crate::built::built("libnvidia_ml.so", "fake-nvml");
    let seen = |options: &[&str]| {
        let show = "echo \"$CUDA_VISIBLE_DEVICES|$CUDA_DEVICE_ORDER|$PLIMSOLL_GUARD\"";
        let output = run(options, &["sh", "-c", show])
            .env("PLIMSOLL_NVML", &nvml)
            .env("PLIMSOLL_FAKE_NVML_CARDS", two_cards())
            .env_remove("CUDA_VISIBLE_DEVICES")
            .output()
            .unwrap();
        stated(&output).0.trim().to_owned() + stated(&output).1.lines().next().unwrap_or_default()
    };
    let second = "GPU-00000002-0000-0000-0000-000000000000";
    let end = "plimsoll run: the program allocated no GPU memory";
    assert_eq!(
        seen(&["--card", "1=8GiB"]),
        format!("{second}|PCI_BUS_ID|card={second}:8589934592 hide-others{end}")
    );
    assert_eq!(
        seen(&["--card", "Fake 2", "--budget", "1GiB"]),
        format!("{second}|PCI_BUS_ID|card={second} budget=1073741824 hide-others{end}")
    );
    assert_eq!(
        seen(&["--card", second, "--strict-cards"]),
        format!("|PCI_BUS_ID|card={second} contexts=refuse{end}")
    );
    assert!(seen(&["--card", "7"]).contains("0 Fake 1 (GPU-00000001"));
}

#[test]
fn a_card_of_amds_is_named_as_nvidias_are_and_seen_alone_by_each_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let device = "sys/class/drm/card1/device";
    let event = "DRIVER=amdgpu\nPCI_ID=1002:744C\nPCI_SLOT_NAME=0000:03:00.0\n";
    write(&format!("{device}/uevent"), event);
    write(&format!("{device}/drm/renderD129/dev"), "");
    write(&format!("{device}/mem_info_vram_total"), "25769803776");
    write(&format!("{device}/mem_info_vram_used"), "0");
    let node = "sys/class/kfd/kfd/topology/nodes/1";
    write(&format!("{node}/properties"), "simd_count 192\nvendor_id 4098\ndrm_render_minor 129\n");
    write(&format!("{node}/gpu_id"), "51");
    let nvml = crate::built::built("libnvidia_ml.so", "fake-nvml");
    for name in ["2", "0000:03:00.0", "AMD Radeon RX 7900"] {
        let show =
            "echo \"$CUDA_VISIBLE_DEVICES|$ROCR_VISIBLE_DEVICES|$HIP_VISIBLE_DEVICES|$PLIMSOLL_GUARD\"";
        let output = run(&["--card", name], &["sh", "-c", show])
            .env("PLIMSOLL_NVML", &nvml)
            .env("PLIMSOLL_FAKE_NVML_CARDS", two_cards())
            .env("PLIMSOLL_CARD_FILES", folder.path())
            .output()
            .unwrap();
        let seen = "|0|0|card=GPU-00000000-0300-0000-0000-000000000000 hide-others";
        assert_eq!(stated(&output).0.trim(), seen, "{name}: {}", stated(&output).1);
    }
}

#[test]
fn a_static_program_is_said_to_be_out_of_reach() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("a.c"), folder.path().join("a"));
    std::fs::write(&source, "int main(void) { return 3; }").unwrap();
    let built = std::process::Command::new("cc").args(["-static", "-o"]).args([&program, &source]).status();
    assert!(built.unwrap().success());
    let output = run(&[], &[program.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(stated(&output).1.contains("the program is linked statically"));
}
