//! Tests of `plimsoll plan --check`: a process compared with the driver's figures, an engine with its own.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{plimsoll, specimen, text};
use crate::built::built;

const LIMIT: Duration = Duration::from_secs(60);

/// A double of llama-server that listens.
struct Engine {
    child: Child,
    port: u16,
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Engine {
    fn start(model: &Path, flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let child = Command::new(built("fake-engine", "fake-engine"))
            .args(["--port", &port.to_string(), "--model"])
            .arg(model)
            .args(flags)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let engine = Self { child, port };
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(start.elapsed() < LIMIT, "the engine does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        engine
    }

    /// Checks it where the driver says that it holds `used` MiB of one card.
    fn checked(&self, target: &str, used: u64, more: &[&str]) -> Output {
        let pid = self.child.id();
        let free = 143_771 - used;
        let cards = format!(
            r#"[{{"uuid":"GPU-a","name":"NVIDIA H200","total":{},"free":{},"processes":[{{"pid":{pid},"used":{}}}]}}]"#,
            143_771_u64 << 20,
            free << 20,
            used << 20
        );
        Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["plan", "--json", "--check", target])
            .args(more)
            .env("PLIMSOLL_NVML", built("libnvidia_ml.so", "fake-nvml"))
            .env("PLIMSOLL_FAKE_NVML_CARDS", cards)
            .env_remove("CUDA_VISIBLE_DEVICES")
            .output()
            .unwrap()
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

#[test]
fn a_process_is_planned_from_its_own_words_and_compared_with_what_the_driver_says() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let engine = Engine::start(&model, &["-c", "8192"], &[("LLAMA_ARG_N_PARALLEL", "2")]);
    let pid = engine.child.id().to_string();
    let check = json(&engine.checked(&pid, 6500, &[]));
    let card = &check["models"][0]["cards"][0];
    let mib = |value: &Value| value.as_u64().unwrap() >> 20;
    let (loaded, peak) = (mib(&card["loaded"]), mib(&card["peak"]));
    assert_eq!((&check["schema"], mib(&card["measured"])), (&"plimsoll.check/1".into(), 6500));
    assert_eq!(check["models"][0]["said"][1]["planned"], 2, "the environment counts too");
    assert!(loaded < peak && card["terms"]["kv"] == 1_u64 << 30, "{card}");
    for (used, status) in [
        (loaded + 1, 0),
        (peak - 1, 0),
        (peak + peak * 15 / 1000, 0),
        (peak + peak * 15 / 1000 + 2, 1),
        (loaded - loaded / 10, 1),
    ] {
        let output = engine.checked(&pid, used, &[]);
        assert_eq!(output.status.code(), Some(status), "{used}: {}", text(&output.stdout));
    }
    let wide = engine.checked(&pid, peak + 900, &["--margin", "1GiB"]);
    assert_eq!(wide.status.code(), Some(0));
}

/// Files of a machine with a Radeon of which a process holds so much.
fn radeon(root: &Path, pid: u32, mib: u64) {
    let device = root.join("sys/class/drm/card1/device");
    let write = |path: PathBuf, text: String| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let event = "DRIVER=amdgpu\nPCI_ID=1002:744C\nPCI_SLOT_NAME=0000:03:00.0\n";
    write(device.join("uevent"), event.to_owned());
    write(device.join("mem_info_vram_total"), (24_u64 << 30).to_string());
    write(device.join("mem_info_vram_used"), (mib << 20).to_string());
    let client = "drm-driver: amdgpu\ndrm-pdev: 0000:03:00.0\ndrm-client-id: 1\ndrm-resident-vram:";
    write(root.join(format!("proc/{pid}/fdinfo/5")), format!("{client} {mib} MiB\n"));
    write(root.join("proc/meminfo"), "MemTotal: 67108864 kB\nMemAvailable: 41943040 kB\n".to_owned());
}

#[test]
fn a_process_on_a_card_of_amds_is_compared_with_the_kernels_figure_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let engine = Engine::start(&model, &["-c", "8192"], &[]);
    let pid = engine.child.id();
    radeon(folder.path(), pid, 6200);
    let idle = r#"[{"uuid":"GPU-a","name":"NVIDIA L4","total":24000000000,"free":24000000000}]"#;
    let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["plan", "--json", "--check", &pid.to_string()])
        .env("PLIMSOLL_NVML", built("libnvidia_ml.so", "fake-nvml"))
        .env("PLIMSOLL_FAKE_NVML_CARDS", idle)
        .env("PLIMSOLL_CARD_FILES", folder.path())
        .output()
        .unwrap();
    let check = json(&output);
    let [card] = &check["models"][0]["cards"].as_array().unwrap()[..] else { panic!("{check:#}") };
    assert_eq!(card["measured"], 6200_u64 << 20, "{card:#}");
    assert_eq!(card["terms"]["kv"], 1_u64 << 30);
}

#[test]
fn an_engine_is_found_by_its_address_and_asked_for_its_context() {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let engine = Engine::start(&model, &["--ctx-size", "8192"], &[]);
    let address = format!("http://127.0.0.1:{}", engine.port);
    let output = engine.checked(&address, 6390, &[]);
    let check = json(&output);
    assert_eq!(check["models"][0]["pid"], engine.child.id());
    assert_eq!(check["models"][0]["said"][0]["engine"], 8192, "{check}");
    assert_eq!(output.status.code(), Some(0), "{check}");
    let other = engine.checked(&address, 6390, &["--", "-c", "32768"]);
    assert_eq!(other.status.code(), Some(1), "a context that the engine does not have is off");
}

#[test]
fn uncheckable_targets_are_reported_and_exit_2() {
    for (target, stated) in [
        ("chat", "give a PID or an address such as http://127.0.0.1:8080"),
        ("http://192.0.2.7:80", "only loopback addresses are allowed"),
        ("4294967295", "there is no process 4294967295"),
        ("http://127.0.0.1:1", "cannot query http://127.0.0.1:1/props"),
    ] {
        let output = plimsoll(&["plan", "--check", target]);
        assert_eq!(output.status.code(), Some(2), "{target}");
        assert!(text(&output.stderr).contains(stated), "{target}: {}", text(&output.stderr));
    }
}
