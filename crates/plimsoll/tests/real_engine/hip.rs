//! Tests of a real llama.cpp with its HIP backend, on AMD's runtime without a card: an engine sees its
//! assigned cards only.

use std::fs;
use std::process::Command;

use serde_json::json;
use tempfile::TempDir;

use super::debian;
use super::fleet::chat;
use super::vulkan::{devices, recorder};
use crate::built::built;
use crate::daemon::{Daemon, Setup};

const GIB: u64 = 1 << 30;
const CARDS: &str = "total=25769803776,cc=8.9,name=Radeon A;total=8589934592,cc=8.9,name=Radeon B,gfx=gfx90a;\
                     total=25769803776,cc=8.9,name=Radeon C";
const HIDING: [&str; 3] = ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"];

struct Bench {
    folder: TempDir,
    libraries: String,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let phantom = built("libplimsoll_phantom.so", "plimsoll-phantom");
        let libraries = debian::HIP.runtime(folder.path(), &phantom).display().to_string();
        recorder(folder.path(), &debian::HIP.server());
        let model = folder.path().join("tiny.gguf");
        plimsoll_specimens::write("tiny", &model, &plimsoll_specimens::Changes::default()).unwrap();
        Self { folder, libraries }
    }

    /// The devices of an engine that Plimsoll did not start.
    fn alone(&self, hidden: &[(&str, &str)]) -> Vec<String> {
        let mut command = Command::new(self.folder.path().join("llama-server"));
        command
            .arg("--list-devices")
            .env("LD_LIBRARY_PATH", &self.libraries)
            .env("PLIMSOLL_PHANTOM_CARDS", CARDS);
        for variable in HIDING {
            command.env_remove(variable);
        }
        let output = command.envs(hidden.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        devices(&String::from_utf8_lossy(&output.stdout))
    }

    /// The devices of the engine of a daemon, whose model has these lines, with this before its start.
    fn served(&self, machine: &Machine, lines: &str, hidden: &[(&str, &str)]) -> Vec<String> {
        let daemon = self.start(machine, lines, hidden);
        let answer = chat(daemon.address, "m");
        let seen = fs::read_to_string(self.folder.path().join("seen"));
        let seen = devices(&seen.unwrap_or_else(|_| panic!("{}\n{}", answer.text(), daemon.talk())));
        fs::remove_file(self.folder.path().join("seen")).unwrap();
        assert_eq!(answer.status, 200, "{}\n{}", answer.text(), daemon.talk());
        seen
    }

    fn start(&self, machine: &Machine, lines: &str, hidden: &[(&str, &str)]) -> Daemon {
        let setup = match machine {
            Machine::Host => {
                Setup::with_cards(&["name=host,kind=host,total=8GiB"]).variable("PLIMSOLL_NVML", "")
            }
            Machine::Described => Setup::with_cards(&["name=A,total=24GiB"]).variable("PLIMSOLL_NVML", ""),
            Machine::Nvidia => {
                let card = json!([{"uuid": "GPU-aaaa", "name": "Fake A", "total": 24 * GIB, "free": 24 * GIB,
                                   "cc": [8, 9], "pci": "00000000:00:00.0"}]);
                Setup::with_cards(&[])
                    .variable("PLIMSOLL_NVML", &built("libnvidia_ml.so", "fake-nvml").to_string_lossy())
                    .variable("PLIMSOLL_FAKE_NVML_CARDS", &card.to_string())
            }
        };
        let folder = self.folder.path().display();
        let setup = setup.named("models.ini").config(&format!(
            ";plimsoll: engine = {folder}/llama-server\n;plimsoll: pass-env = PLIMSOLL_PHANTOM_CARDS\n[m]\nmodel = {folder}/tiny.gguf\nctx-size = 256\nthreads = 1\n{lines}\n",
        ));
        let setup =
            setup.variable("LD_LIBRARY_PATH", &self.libraries).variable("PLIMSOLL_PHANTOM_CARDS", CARDS);
        hidden.iter().fold(setup, |setup, (name, value)| setup.variable(name, value)).start()
    }
}

/// What the daemon knows of cards.
enum Machine {
    /// None, and so it serves from the host's memory.
    Host,
    /// A card of the command line without a UUID.
    Described,
    /// A card of NVIDIA's.
    Nvidia,
}

fn roc(names: &[&str]) -> Vec<String> {
    names.iter().enumerate().map(|(number, name)| format!("ROCm{number}: Radeon {name}")).collect()
}

#[test]
fn long_an_engine_on_hip_sees_no_card_that_it_was_not_given_by_every_variable() {
    let bench = Bench::new();
    assert_eq!(bench.alone(&[]), roc(&["A", "B", "C"]));
    for variable in HIDING {
        assert_eq!(bench.alone(&[(variable, "2,0")]), roc(&["C", "A"]), "{variable}");
    }
    // Cards that the daemon does not know are nobody's.
    for (machine, lines) in [
        (Machine::Nvidia, ""),
        (Machine::Nvidia, "device = none"),
        (Machine::Nvidia, "device = none\nn-gpu-layers = 0"),
        (Machine::Described, "device = none"),
        (Machine::Host, ""),
    ] {
        assert_eq!(bench.served(&machine, lines, &[]), roc(&[]), "{lines}");
        assert_eq!(bench.served(&machine, lines, &[("ROCR_VISIBLE_DEVICES", "0,1")]), roc(&[]), "{lines}");
    }
    // Those that the model's own variables name are given by the user, through each layer of AMD's runtime.
    for (own, given) in [
        ("ROCR_VISIBLE_DEVICES=2", &["C"][..]),
        ("HIP_VISIBLE_DEVICES=1", &["B"]),
        ("ROCR_VISIBLE_DEVICES=2,1;HIP_VISIBLE_DEVICES=1", &["B"]),
    ] {
        let lines: String = own.split(';').map(|pair| format!(";plimsoll: env = {pair}\n")).collect();
        assert_eq!(bench.served(&Machine::Nvidia, &lines, &[]), roc(given), "{own}");
        assert_eq!(bench.served(&Machine::Host, &lines, &[]), roc(&[]), "{own}");
    }
    // A card that is only described has no name for a runtime, so the daemon's own variables count.
    for (variable, given) in HIDING.map(|name| (name, &["B"][..])) {
        assert_eq!(bench.served(&Machine::Described, "", &[(variable, "1")]), roc(given), "{variable}");
    }
}
