//! Tests of `plimsoll doctor` as a process: its input, its output, and its exit status.

use std::io::Write;
use std::mem::offset_of;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use plimsoll_wire::page::{PageCard as Card, Refusal};
use serde_json::Value;

use crate::pages::hand_written::{HandWritten, library};

/// On a machine without cards.
fn doctor(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command
        .arg("doctor")
        .args(arguments)
        .env("PLIMSOLL_NVML", "")
        .env("PLIMSOLL_GUARD_LIBRARY", library())
        .stdin(Stdio::null());
    command
}

fn stated(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("stdout is JSON alone")
}

fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(path)
}

fn log(name: &str) -> String {
    data("logs").join(name).to_str().expect("text").to_owned()
}

#[test]
fn a_program_that_failed_for_no_known_cause_is_not_sent_to_where_it_was() {
    let output = doctor(&["--", "/bin/false"]).output().unwrap();
    let (text, error) = stated(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("shows none of the known causes"), "{text}");
    assert!(
        !text.contains("plimsoll doctor -- CMD") && !error.contains("plimsoll doctor -- CMD"),
        "{text}{error}"
    );
}

/// The words of many failures are in it, and it tells of none.
#[test]
fn the_log_of_a_healthy_server_has_no_cause() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("serve.log");
    let lines = [
        "engine /opt/llama-server (llama.cpp b10605, CPU only)",
        "card  host  21662 MiB available of 24106 MiB",
        "load alpha: 1514 MiB on host (1514 MiB of 21662 MiB reserved)",
        "ready alpha in 104 ms",
        "request alpha 200: 12 tokens, the answer ends after 30 ms",
        "the yield on host ends; other processes keep 512 MiB of memory",
        "stop alpha (idle 0 s): beta needs 100 MiB, and the host process holds the memory",
        "end: 3 requests answered, the server ends and releases its memory",
    ];
    let text: String = lines.iter().map(|line| format!("2026-11-23T23:15:49.746Z  INFO {line}\n")).collect();
    std::fs::write(&log, text).unwrap();
    let output = doctor(&[log.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stated(&output).0);
}

#[test]
fn a_log_is_read_from_a_file_and_from_a_pipe_with_one_answer() {
    let file = log("pool_growth.vmm.log");
    let by_file = doctor(&["--json", &file]).output().unwrap();
    assert_eq!(by_file.status.code(), Some(0));
    let mut child = doctor(&["--json", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&std::fs::read(&file).unwrap()).unwrap();
    drop(pipe);
    let by_pipe = child.wait_with_output().unwrap();
    assert_eq!(by_file.stdout, by_pipe.stdout);
    let verdict = json(&by_file);
    assert_eq!(verdict["schema"], "plimsoll.diagnosis/1");
    assert_eq!(verdict["cause"], "pool_growth");
    assert_eq!(verdict["evidence"][0]["line"], 7);
    let text = doctor(&[&file]).output().unwrap();
    let (stdout, stderr) = stated(&text);
    assert!(stdout.starts_with("pool_growth: ") && stdout.contains("\nhint: "), "{stdout}");
    assert_eq!(stderr, "");
}

/// Logs of different programs have no common cause, so each has its own verdict.
#[test]
fn several_logs_with_different_causes_are_diagnosed_one_by_one() {
    let names =
        ["kv_cache_too_large.h200.llama.log", "foreign_process.vllm.log", "other.unknown.nothing.log"];
    let [cache, foreign, nothing] = names.map(log);
    let output = doctor(&[&cache, &foreign, &nothing]).output().unwrap();
    let (text, _) = stated(&output);
    assert!(text.starts_with("these logs show different causes\n"), "{text}");
    assert_eq!(output.status.code(), Some(0));
    for expected in [
        format!("\n\n{cache}: kv_cache_too_large: the KV cache does not fit (9"),
        format!("\n\n{foreign}: foreign_process: other processes hold the memory"),
        format!("\n\n{nothing}: the evidence shows none of the known causes\n"),
        format!("    {cache}:"),
        "\nhint: ".to_owned(),
    ] {
        assert!(text.contains(&expected), "{expected:?} in {text}");
    }
    assert!(!text.contains("alone shows"), "{text}");
    let verdict = json(&doctor(&["--json", &cache, &foreign, &nothing]).output().unwrap());
    assert_eq!((&verdict["cause"], &verdict["confidence"]), (&"other".into(), &0.0.into()));
    let alone = verdict["alone"].as_array().unwrap();
    let causes: Vec<&Value> = alone.iter().map(|log| &log["cause"]).collect();
    assert_eq!(causes, ["kv_cache_too_large", "foreign_process", "other"], "{verdict}");
    assert_eq!(alone[1]["log"], *foreign);
    assert!(!alone[0]["hints"].as_array().unwrap().is_empty(), "{verdict}");
    let one = json(&doctor(&["--json", &cache]).output().unwrap());
    assert!(one["alone"].is_null(), "{one}");
    let unknown = doctor(&[&nothing, &nothing]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(3));
}

#[test]
fn several_logs_of_one_failure_have_one_verdict() {
    for (logs, cause) in [
        (["kv_cache_too_large.h200.llama.log", "kv_cache_too_large.llama.log"], "kv_cache_too_large: "),
        (["host_oom.killed.llama.log", "host_oom.host_oom_killer.dmesg.log"], "host_oom: "),
        (["pool_growth.h200.llama.log", "other.unknown.nothing.log"], "pool_growth: "),
    ] {
        let [one, two] = logs.map(log);
        for order in [[&*one, &*two], [&*two, &*one]] {
            let (text, _) = stated(&doctor(&order).output().unwrap());
            assert!(text.starts_with(cause), "{text}");
        }
    }
}

/// Words of the joined text may be like those of reports of anything.
#[test]
fn no_words_of_other_logs_outvote_what_one_log_proves() {
    let folder = tempfile::tempdir().unwrap();
    let prose = folder.path().join("prose.txt");
    std::fs::write(
        &prose,
        "Since the update the model answers slowly on this gpu; the new compute warning of llama is not the problem.\n",
    )
    .unwrap();
    for name in std::fs::read_dir(data("logs")).unwrap() {
        let name = name.unwrap().file_name().into_string().unwrap();
        let own = json(&doctor(&["--json", &log(&name)]).output().unwrap());
        if own["confidence"].as_f64().unwrap() < 0.8 || !name.ends_with(".log") {
            continue;
        }
        let both = json(&doctor(&["--json", &log(&name), prose.to_str().unwrap()]).output().unwrap());
        let is_proven = both["confidence"].as_f64().unwrap() >= 0.8;
        assert!(is_proven && both["cause"] == own["cause"], "{name}: {both}");
    }
}

#[test]
fn the_status_says_whether_a_cause_is_named() {
    let unknown = doctor(&[&log("other.unknown.nothing.log")]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(3));
    let missing = doctor(&["/no/such/log"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(stated(&missing).1.contains("cannot read the log `/no/such/log`"));
    let nobody = doctor(&["--pid", "4194305"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(2));
}

/// A daemon that is alive writes of the end of an engine; the daemon itself has not met it.
#[test]
fn a_live_process_is_not_judged_by_an_old_line_of_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    for (line, expected) in [
        (
            "WARN b was killed by signal 9 (SIGKILL)\nKilled\n",
            "the process is running; no failure of this process is known",
        ),
        (
            " INFO engine /opt/llama-server (as configured)\n INFO 2 models of a.toml at http://127.0.0.1:8080\n\
             INFO engines do not inherit HOME; `pass-env` passes them on\n INFO card  host memory  18 GiB available\n",
            "the process is running; no failure of this process is known",
        ),
        (
            "CUDA error: an illegal memory access was encountered\n",
            "the process is running; the log shows an earlier failure:\ndriver_or_hw",
        ),
    ] {
        std::fs::write(&log, line).unwrap();
        let file = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
        let mut alive = std::process::Command::new("sleep").arg("600").stderr(file).spawn().unwrap();
        let output = doctor(&["--pid", &alive.id().to_string()]).output().unwrap();
        alive.kill().unwrap();
        alive.wait().unwrap();
        let (stdout, _) = stated(&output);
        assert!(stdout.contains(expected) && !stdout.contains("host_oom"), "{stdout}");
    }
}

#[test]
fn user_supplied_context_counts_as_evidence_and_is_marked() {
    let log = log("unified_memory_refused.reload-beside-anonymous-pages.log");
    let reported = ["--context", "-ngl 99", "--context", "Jetson Orin Nano, L4T R36.4.7"];
    let output = doctor(&[&["--json"], &reported[..], &[&*log]].concat()).output().unwrap();
    let verdict = json(&output);
    assert_eq!(verdict["sub_cause"], "nvmap_policy_cap");
    let reported = verdict["evidence"].as_array().unwrap();
    assert!(reported.iter().any(|quote| quote["source"] == "context"), "{verdict}");
}

#[test]
fn a_program_is_passed_through_and_its_end_is_explained_and_repeated() {
    let script = "echo out; cat \"$0\" >&2; exit 6";
    let file = log("model_too_large.llama-b10605.log");
    let output = doctor(&["--", "sh", "-c", script, &file]).output().unwrap();
    assert_eq!(output.status.code(), Some(6));
    let (stdout, stderr) = stated(&output);
    assert!(stdout.starts_with("out\n"), "{stdout}");
    assert!(stdout.contains("the program ended with status 6\nmodel_too_large: "), "{stdout}");
    assert!(stderr.contains(&std::fs::read_to_string(&file).unwrap()), "{stderr}");
}

#[test]
fn successful_program_needs_no_verdict_and_a_killed_one_has_the_shell_status() {
    let script = "cat \"$0\"";
    let file = log("model_too_large.llama-b10605.log");
    let well = doctor(&["--", "sh", "-c", script, &file]).output().unwrap();
    assert_eq!(well.status.code(), Some(0));
    assert!(stated(&well).0.ends_with("the program ended successfully\n"));
    let killed = doctor(&["--", "sh", "-c", "kill -KILL $$"]).output().unwrap();
    assert_eq!(killed.status.code(), Some(128 + 9));
    let unexplained = doctor(&["--", "sh", "-c", "exit 3"]).output().unwrap();
    assert_eq!(unexplained.status.code(), Some(3));
    let stdout = stated(&unexplained).0;
    assert!(
        stdout.starts_with("the program ended with status 3\nthe evidence shows none of the known causes"),
        "{stdout}"
    );
    for (program, status) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        let output = doctor(&["--", program]).output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        let (stdout, stderr) = stated(&output);
        assert!(stdout.is_empty() && stderr.contains(program), "it did not run, so it did not end: {stdout}");
    }
    // execve(2) alone sees that its interpreter is missing.
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = doctor(&["--"]).arg(&script).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(stated(&output).0.starts_with("the program could not be started\n"), "{}", stated(&output).0);
}

/// A program from a package manager may come without the library; the program is run all the same, and said
/// to be.
#[test]
fn without_guard_a_program_is_run_and_its_end_is_its_own() {
    let output = doctor(&["--", "sh", "-c", "echo out; exit 3"])
        .env("PLIMSOLL_GUARD_LIBRARY", "/no/such/library.so")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let (stdout, stderr) = stated(&output);
    assert!(
        stdout.starts_with("out\nthe program ended with status 3\nthe program ran without guard"),
        "{stdout}"
    );
    assert!(!stderr.contains("cargo xtask guard"), "{stderr}");
}

#[test]
fn guard_page_is_evidence_and_gives_the_refused_size() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page");
    HandWritten::new([7; 16])
        .card(offset_of!(Card, peak), 1 << 30)
        .refusal(Refusal::Driver, 3 << 30)
        .write(&page);
    let output =
        doctor(&["--json", "--", "sh", "-c", "exit 1"]).env("PLIMSOLL_TEST_PAGE", &page).output().unwrap();
    let verdict = json(&output);
    let seen = verdict["seen"].as_array().unwrap();
    let refused = seen.iter().find(|part| part["code"] == "guard_refused").unwrap();
    assert_eq!(refused["facts"]["asked"], 3_u64 << 30);
}

#[test]
fn a_captured_machine_is_read_instead_of_this_one() {
    let root = data("sysroot/orin-nano-r36.4.7");
    let output = doctor(&["--sysroot", root.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let (stdout, stderr) = stated(&output);
    assert!(
        stdout.contains(
            "R36.4.7 refuses large allocations no matter how much is free; upgrade to R36.5.0 or later"
        ),
        "{stdout}"
    );
    assert!(stdout.contains("are in blocks of 64 KiB or more"), "{stdout}");
    // Its GPU is part of the processor, and in no list of cards.
    assert!(!stdout.contains("no GPU is visible"), "{stdout}");
    assert!(stdout.contains("\nunified_memory_refused: this release of L4T refuses"), "{stdout}");
    assert_eq!(stderr, "");
    let nowhere = doctor(&["--sysroot", "/no/such/tree"]).output().unwrap();
    assert_eq!(nowhere.status.code(), Some(2));
}

#[test]
fn cards_of_a_captured_machine_are_shown_in_bytes_and_unknown_figures_are_null() {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    // Strix Halo, and an RX 7900 XTX whose driver states no memory.
    write(
        "sys/class/drm/card0/device/uevent",
        "DRIVER=amdgpu\nPCI_ID=1002:1586\nPCI_SLOT_NAME=0000:c2:00.0\n",
    );
    write("sys/class/drm/card0/device/revision", "0xc1\n");
    for (file, bytes) in [
        ("vram_total", "536870912"),
        ("vram_used", "268435456"),
        ("gtt_total", "128849018880"),
        ("gtt_used", "0"),
    ] {
        write(&format!("sys/class/drm/card0/device/mem_info_{file}"), bytes);
    }
    write(
        "sys/class/drm/card1/device/uevent",
        "DRIVER=amdgpu\nPCI_ID=1002:744C\nPCI_SLOT_NAME=0000:03:00.0\n",
    );
    write("sys/module/ttm/parameters/pages_limit", "31457280\n");
    write("proc/meminfo", "MemTotal: 131072000 kB\nMemFree: 1048576 kB\nMemAvailable: 93323264 kB\n");
    write("proc/77/comm", "llama-server\n");
    let client = "drm-driver: amdgpu\ndrm-client-id: 9\ndrm-pdev: 0000:c2:00.0\n";
    write("proc/77/fdinfo/5", &format!("{client}drm-memory-vram: 100 MiB\ndrm-memory-gtt: 3996 MiB\n"));
    let sysroot = root.path().to_str().unwrap();
    let output = doctor(&["--json", "--sysroot", sysroot]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let verdict = json(&output);
    let seen = verdict["seen"].as_array().unwrap();
    let holder = seen.iter().find(|reason| reason["code"] == "holder").unwrap();
    assert_eq!(
        (&holder["facts"]["pid"], &holder["facts"]["used"]),
        (&77.into(), &(4_u64 << 30).into()),
        "{holder}"
    );
    let [apu, card] = verdict["cards"].as_array().unwrap().as_slice() else { panic!("{verdict:#}") };
    assert_eq!(apu["name"], "AMD Radeon 8060S Graphics");
    assert_eq!((&apu["board"], &apu["limit"]), (&"shared".into(), &"mem_available".into()));
    assert_eq!((&apu["free"], &apu["vram"]["total"]), (&(89_u64 << 30).into(), &536_870_912.into()));
    assert_eq!(
        (&card["id"], &card["total"], &card["free"]),
        (&"0000:03:00.0".into(), &Value::Null, &Value::Null)
    );
    let (text, _) = stated(&doctor(&["--sysroot", sysroot]).output().unwrap());
    assert!(
        text.contains(
            "card 0: AMD Radeon 8060S Graphics, 91136 MiB of 123392 MiB free, limited by the host's available memory (MemAvailable); it \
             shares the host's memory"
        ),
        "{text}"
    );
    assert!(text.contains("card 0: llama-server (77) holds 4096 MiB\n"), "{text}");
    assert!(text.contains("mem_info_vram_total cannot be read"), "{text}");
}

#[test]
fn the_machine_and_a_process_of_it_are_looked_at_as_they_are() {
    let machine = doctor(&[]).output().unwrap();
    assert_eq!(machine.status.code(), Some(0));
    let (stdout, _) = stated(&machine);
    assert!(stdout.contains("can be allocated now") && stdout.contains("no GPU is visible"), "{stdout}");
    let own = std::process::id().to_string();
    let text = doctor(&["--pid", &own]).output().unwrap();
    assert!(stated(&text).0.contains("the process is running; "), "{text:?}");
    let process = doctor(&["--json", "--pid", &own]).output().unwrap();
    assert_eq!(process.status.code(), Some(0));
    let seen = json(&process)["seen"].clone();
    assert!(seen.as_array().unwrap().iter().any(|part| part["code"] == "status"), "{seen}");
}
