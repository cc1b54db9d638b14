//! Tests that engines on AMD's and Intel's cards see exactly the cards assigned to them, with every GPU
//! runtime.
//!
//! The cards are written files of the kernel's, and the engines stand-ins beside libraries of backends.

use std::mem::offset_of;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use plimsoll_wire::options::Uuid;
use plimsoll_wire::page::PageCard;
use serde_json::{Value, json};

use crate::built::built;
use crate::daemon::{Daemon, Setup, fake_engine, until};
use crate::http::{chat, get};
use crate::pages::hand_written::{HandWritten, library};

pub(super) const GIB: u64 = 1 << 30;
pub(super) const FIRST: &str = "0000:03:00.0";
const SECOND: &str = "0000:0a:00.0";
pub(super) const UNIQUE: &str = "946d7e1ef9b172dd";

/// Files of a machine, and folders of engines.
pub(super) struct Machine(tempfile::TempDir);

impl Machine {
    pub(super) fn new() -> Self {
        let machine = Self(tempfile::tempdir().expect("a temporary folder"));
        machine.write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 41943040 kB\n");
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
        std::fs::write(path, text).expect("the folder can be written");
    }

    /// Card `number` of amdgpu with VRAM and GTT in GiB, and its node for compute.
    pub(super) fn amd(
        self,
        number: u32,
        address: &str,
        id: &str,
        unique: Option<&str>,
        gib: [u64; 2],
    ) -> Self {
        let device = format!("sys/class/drm/card{number}/device");
        let event = format!("DRIVER=amdgpu\nPCI_ID={id}\nPCI_SLOT_NAME={address}\n");
        self.write(&format!("{device}/uevent"), &event);
        self.write(&format!("{device}/drm/renderD{}/dev", 128 + number), "");
        for (pool, gib) in ["vram", "gtt"].into_iter().zip(gib) {
            self.write(&format!("{device}/mem_info_{pool}_total"), &(gib * GIB).to_string());
            self.write(&format!("{device}/mem_info_{pool}_used"), "0");
        }
        let number_of = |unique: &str| u64::from_str_radix(unique, 16).expect("hexadecimal digits");
        if let Some(unique) = unique {
            self.write(&format!("{device}/unique_id"), unique);
        }
        // The processor is node 0.
        let node = format!("sys/class/kfd/kfd/topology/nodes/{number}");
        let properties = format!(
            "simd_count 192\nvendor_id 4098\ndrm_render_minor {}\nunique_id {}\n",
            128 + number,
            unique.map_or(0, number_of)
        );
        self.write(&format!("{node}/properties"), &properties);
        self.write(&format!("{node}/gpu_id"), &(50 + number).to_string());
        self
    }

    /// An engine with these backends; `first` is what it does before it serves.
    pub(super) fn engine(&self, name: &str, backends: &[&str], first: &str) -> PathBuf {
        let folder = self.0.path().join("engines").join(name);
        std::fs::create_dir_all(&folder).expect("it can be made");
        for backend in backends.iter().chain(&["cpu"]) {
            std::fs::write(folder.join(format!("libggml-{backend}.so")), "").expect("it can be written");
        }
        let program = folder.join("llama-server");
        let script = format!("#!/bin/sh\n{first}\nexec '{}' \"$@\"\n", fake_engine().display());
        std::fs::write(&program, script).expect("it can be written");
        let runnable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, runnable).expect("it is ours");
        program
    }

    /// What an engine does that holds memory of a card.
    fn holds(&self, address: &str, mib: u64) -> String {
        let root = self.0.path().display();
        format!(
            "mkdir -p '{root}'/proc/$$/fdinfo\nprintf 'drm-driver: amdgpu\\ndrm-pdev: {address}\\n\
             drm-client-id: {mib}\\ndrm-resident-vram: {mib} MiB\\n' > '{root}'/proc/$$/fdinfo/5"
        )
    }

    /// Two equal cards.
    fn twins() -> Self {
        let first = Self::new().amd(1, FIRST, "1002:744C", Some(UNIQUE), [24, 16]);
        first.amd(2, SECOND, "1002:744C", None, [24, 16])
    }

    pub(super) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn setup(&self) -> Setup {
        Setup::with_cards(&[])
            .variable("PLIMSOLL_NVML", "")
            .variable("PLIMSOLL_CARD_FILES", self.0.path().to_str().expect("UTF-8"))
    }
}

pub(super) fn with_model(setup: Setup, name: &str, engine: &Path, gib: u64, more: &str) -> Setup {
    setup.config(&format!(
        "[models.{name}]\ncmd = \"{} --port ${{PORT}} -hf user/m --no-mmproj\"\nmemory = \"{gib}GiB\"\n{more}\n",
        engine.display()
    ))
}

/// One of NVIDIA's beside.
fn with_nvidia(setup: Setup) -> Setup {
    let card = json!([{"uuid": "GPU-aaaa", "name": "Fake 24G", "total": 24 * GIB, "free": 24 * GIB,
        "cc": [8, 9], "pci": "00000000:41:00.0"}]);
    setup
        .variable("PLIMSOLL_NVML", &built("libnvidia_ml.so", "fake-nvml").to_string_lossy())
        .variable("PLIMSOLL_FAKE_NVML_CARDS", &card.to_string())
}

const RUNTIMES: [&str; 5] = [
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GGML_VK_VISIBLE_DEVICES",
    "ONEAPI_DEVICE_SELECTOR",
];

/// What each runtime shows to the engine of a model.
fn seen(daemon: &Daemon, model: &str) -> [String; 5] {
    let answer = chat(daemon.address, model);
    assert_eq!(answer.status, 200, "{}\n{}", answer.text(), daemon.talk());
    let environment = get(daemon.address, &format!("/upstream/{model}/fake/env")).json()["env"].clone();
    RUNTIMES.map(|name| environment[name].as_str().unwrap_or("unset").to_owned())
}

/// Claims by card.
fn claims(daemon: &Daemon) -> Vec<(String, u64)> {
    let status = daemon.status();
    let cards = status["cards"].as_array().expect("cards").iter();
    let claim = |card: &Value| Some((card["name"].as_str()?.to_owned(), card["claimed"].as_u64()? / GIB));
    cards.filter_map(claim).collect()
}

#[test]
fn a_machine_with_cards_of_two_makers_serves_on_both_with_two_engines() {
    let machine = Machine::new().amd(1, FIRST, "1002:744C", Some(UNIQUE), [24, 16]);
    let (cuda, hip) = (machine.engine("cuda", &["cuda"], ""), machine.engine("hip", &["hip"], ""));
    let mut setup = with_nvidia(machine.setup());
    for (name, engine) in [("c", &cuda), ("h", &hip)] {
        setup = with_model(setup, name, engine, 20, "");
    }
    setup = with_model(setup, "none", &hip, 1, "env = { LLAMA_ARG_DEVICE = \"none\" }");
    setup = with_model(setup, "mine", &hip, 1, "env = { ROCR_VISIBLE_DEVICES = \"7\" }");
    let daemon = setup.start();
    assert_eq!(seen(&daemon, "c"), ["GPU-aaaa", "", "-1", "", "*:cpu"]);
    let amd = ["", "GPU-946d7e1ef9b172dd", "0", "", "*:cpu"];
    assert_eq!(seen(&daemon, "h"), amd);
    assert_eq!(seen(&daemon, "mine"), amd, "plimsoll chooses the card");
    assert_eq!(seen(&daemon, "none"), ["", "", "-1", "", "*:cpu"]);
    let names = ["Fake 24G", "AMD Radeon RX 7900 XT/7900 XTX/7900 GRE/7900M"];
    let on = |name: &str| claims(&daemon).into_iter().find(|(card, _)| card == name).map(|(_, gib)| gib);
    assert_eq!(names.map(on), [Some(20), Some(22)], "{:?}", claims(&daemon));
    assert_eq!(daemon.status()["other_cards"], Value::Null);
}

#[test]
fn two_equal_cards_are_distinguished_and_a_third_model_takes_the_place_of_the_idle_one() {
    let machine = Machine::twins();
    let hip = machine.engine("hip", &["hip"], "");
    let named = |address: &str| format!("cards = [\"{address}\"]");
    let mut setup = machine.setup();
    for name in ["a", "b"] {
        setup = with_model(setup, name, &hip, 16, "");
    }
    setup = with_model(setup, "second", &hip, 20, &named(SECOND));
    let daemon = setup.start();
    let of = |rocr: &str| ["", rocr, "0", "", "*:cpu"].map(str::to_owned);
    let mut shown = [seen(&daemon, "a"), seen(&daemon, "b")];
    shown.sort();
    assert_eq!(shown, [of("1"), of("GPU-946d7e1ef9b172dd")], "one each, by its number where it has no UUID");
    assert_eq!(daemon.running(), ["a", "b"]);
    assert_eq!(seen(&daemon, "second"), of("1"));
    assert_eq!(daemon.running().len(), 2, "the model of the other card stays");
}

#[test]
fn an_apu_serves_an_engine_that_can_use_it_within_its_least_limit() {
    let machine = Machine::new().amd(1, "0000:c2:00.0", "1002:1586", None, [4, 60]);
    let hip = machine.engine("hip", &["hip"], "");
    let setup = machine.setup().argument("--engine").argument(hip.to_str().expect("UTF-8"));
    let setup = with_model(setup, "fits", &hip, 30, "");
    let daemon = with_model(setup, "large", &hip, 45, "").start();
    assert_eq!(seen(&daemon, "fits"), ["", "0", "0", "", "*:cpu"]);
    let status = daemon.status();
    let [apu] = status["cards"].as_array().expect("cards").as_slice() else { panic!("{status:#}") };
    assert_eq!((apu["total"].as_u64(), apu["claimed"].as_u64()), (Some(64 * GIB), Some(30 * GIB)));
    let refused = chat(daemon.address, "large");
    assert_ne!(refused.status, 200, "MemAvailable is 40 GiB: {}", refused.text());
}

#[test]
fn an_engine_that_holds_another_card_than_its_own_is_ended_before_it_is_ready() {
    let machine = Machine::twins();
    let mut setup = machine.setup();
    for (name, address, mib) in [("own", FIRST, 900), ("stray", SECOND, 900), ("lists", SECOND, 1)] {
        let engine = machine.engine(name, &["hip"], &machine.holds(address, mib));
        setup = with_model(setup, name, &engine, 4, &format!("cards = [\"{FIRST}\"]"));
    }
    let daemon = setup.start();
    for kept in ["own", "lists"] {
        assert_eq!(chat(daemon.address, kept).status, 200, "{kept}: {}", daemon.talk());
    }
    let answer = chat(daemon.address, "stray");
    assert_ne!(answer.status, 200);
    assert!(answer.text().contains("engine_on_other_card"), "{}", answer.text());
    assert!(answer.text().contains("holds 900 MiB of AMD Radeon"), "{}", answer.text());
    until("its process is gone", || daemon.running() == ["lists", "own"]);
}

#[test]
fn an_engine_that_comes_to_hold_another_card_is_ended() {
    let machine = Machine::twins();
    let root = machine.0.path().display().to_string();
    let first = format!("{}\necho $$ > '{root}/pid'", machine.holds(FIRST, 900));
    let engine = machine.engine("wanders", &["hip"], &first);
    let daemon = with_model(machine.setup(), "m", &engine, 4, &format!("cards = [\"{FIRST}\"]")).start();
    assert_eq!(chat(daemon.address, "m").status, 200, "{}", daemon.talk());
    let pid = std::fs::read_to_string(machine.0.path().join("pid")).expect("it was written");
    let client =
        format!("drm-driver: amdgpu\ndrm-pdev: {SECOND}\ndrm-client-id: 8\ndrm-resident-vram: 700 MiB\n");
    machine.write(&format!("proc/{}/fdinfo/6", pid.trim()), &client);
    daemon.reported("holds 700 MiB of AMD Radeon");
    until("its process is gone", || daemon.running().is_empty());
}

#[test]
fn of_two_equal_cards_an_engine_on_vulkan_is_shown_its_own_by_guards_layer() {
    let machine = Machine::twins();
    let folder = machine.0.path();
    let name = "AMD Radeon RX 7900 XTX (RADV NAVI31) (1 MiB, 1 MiB free)";
    let lists = format!(
        "case \"$1 $GGML_VK_VISIBLE_DEVICES\" in\n'--list-devices 0'|'--list-devices 1') echo '  Vulkan0: {name}';;\nesac\n\
         [ \"$1\" = --list-devices ] && exit\nenv > '{}/seen'",
        folder.display()
    );
    let vulkan = machine.engine("vulkan", &["vulkan"], &lists);
    let place = Uuid::of_address(SECOND).expect("an address");
    let page = folder.join("page");
    HandWritten::new(place.0).card(offset_of!(PageCard, allocations), 1).write(&page);
    let mut setup = machine.setup().variable("PLIMSOLL_GUARD_LIBRARY", library().to_str().expect("text"));
    for (name, env) in [
        ("seen", format!("env = {{ PLIMSOLL_TEST_PAGE = \"{}\" }}", page.display())),
        ("unseen", String::new()),
        ("unguarded", "guard = { mode = \"off\" }".to_owned()),
    ] {
        setup = with_model(setup, name, &vulkan, 4, &format!("cards = [\"{SECOND}\"]\n{env}"));
    }
    let daemon = setup.start();
    let [.., vulkan, _] = seen(&daemon, "seen");
    assert_eq!(vulkan, "0", "the layer lists no other");
    let given = std::fs::read_to_string(folder.join("seen")).expect("it was written");
    let options = format!("PLIMSOLL_GUARD=card={place} hide-others");
    assert!(given.lines().any(|line| line == options), "{options}\n{given}");
    for (model, code) in [("unseen", "vulkan_layer_unused"), ("unguarded", "vulkan_card_unknown")] {
        let refused = chat(daemon.address, model);
        assert!(refused.status != 200 && refused.text().contains(code), "{}", refused.text());
    }
}

#[test]
fn an_engine_with_vulkan_alone_gets_the_number_of_its_card() {
    let machine = Machine::new().amd(1, FIRST, "1002:744C", Some(UNIQUE), [24, 16]);
    let lists = "if [ \"$1\" = --list-devices ]; then\n\
         case \"$GGML_VK_VISIBLE_DEVICES\" in\n\
         0) echo '  Vulkan0: Fake 24G (1 MiB, 1 MiB free)';;\n\
         1) echo '  Vulkan0: AMD Radeon RX 7900 XTX (RADV NAVI31) (1 MiB, 1 MiB free)';;\nesac\nexit\nfi";
    let vulkan = machine.engine("vulkan", &["vulkan"], lists);
    let setup = with_nvidia(machine.setup());
    let setup = with_model(setup, "a", &vulkan, 8, &format!("cards = [\"{FIRST}\"]"));
    let daemon = with_model(setup, "n", &vulkan, 8, "cards = [\"GPU-aaaa\"]").start();
    // ROCm and CUDA show the same card, and this engine has neither.
    assert_eq!(seen(&daemon, "a")[3], "1");
    let [cuda, rocr, _, vulkan, _] = seen(&daemon, "n");
    assert_eq!([cuda, rocr, vulkan], ["GPU-aaaa", "", "0"]);
}

#[test]
fn an_engine_without_a_backend_for_the_named_card_is_refused_with_what_to_do() {
    let machine = Machine::new().amd(1, FIRST, "1002:744C", Some(UNIQUE), [24, 16]);
    let cuda = machine.engine("cuda", &["cuda"], "");
    let setup = with_model(machine.setup(), "a", &cuda, 8, &format!("cards = [\"{FIRST}\"]"));
    let daemon = setup.start();
    let refused = chat(daemon.address, "a");
    assert_ne!(refused.status, 200);
    assert!(refused.text().contains("give an engine with HIP or Vulkan"), "{}", refused.text());
}

#[test]
fn memory_that_the_driver_moves_off_a_card_is_in_status_metrics_and_log() {
    let machine = Machine::new().amd(1, FIRST, "1002:744C", Some(UNIQUE), [24, 16]);
    let root = machine.0.path().display().to_string();
    let client = |evicted: u64| {
        format!(
            "drm-driver: amdgpu\ndrm-pdev: {FIRST}\ndrm-client-id: 7\ndrm-resident-vram: 900 MiB\n\
             drm-resident-gtt: {} MiB\namd-evicted-vram: {evicted} MiB\n",
            evicted + 40
        )
    };
    let holds = format!(
        "mkdir -p '{root}'/proc/$$/fdinfo\necho $$ > '{root}'/pid\nprintf '{}' > '{root}'/proc/$$/fdinfo/5",
        client(0).replace('\n', "\\n")
    );
    let vulkan = machine.engine("vulkan", &["hip"], &holds);
    let daemon = with_model(machine.setup(), "m", &vulkan, 8, "").start();
    assert_eq!(chat(daemon.address, "m").status, 200, "{}", daemon.talk());
    assert_eq!(daemon.status()["moved_to_host"], Value::Null, "buffers for transfers are none");
    let pid = std::fs::read_to_string(machine.0.path().join("pid")).expect("it was written");
    machine.write(&format!("proc/{}/fdinfo/5", pid.trim()), &client(700));
    daemon.reported("the driver has moved 700 MiB of the model's memory from its card to host memory");
    assert_eq!(daemon.status()["moved_to_host"], json!([{"model": "m", "bytes": 700_u64 << 20}]));
    let page = get(daemon.address, "/metrics").text();
    let figure = format!("plimsoll_moved_to_host_bytes{{model=\"m\"}} {}", 700_u64 << 20);
    assert!(page.contains(&figure), "{page}");
}
