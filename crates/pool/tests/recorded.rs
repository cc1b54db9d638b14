//! Tests that Plimsoll's allocator policy keeps its limits of memory and driver calls on recorded allocations
//! (SPECIFICATION: pool).
//!
//! The complete recordings are large and not in the repository; they are read if present. A shortened one,
//! `data/traces`, is always read.

use std::collections::HashMap;
use std::path::Path;

use plimsoll_pool::{Block, Ours, OursOptions, ServedPolicy, Stream, Trim};

use super::simulated::Simulated;

const GRANULE: u64 = 2 << 20;
const CARD: u64 = 141 << 30;

/// One request.
#[derive(Clone, Copy)]
enum Request {
    Allocate { id: u64, size: u64 },
    Free { id: u64 },
}

struct Recording {
    name: String,
    requests: Vec<Request>,
    peak_live: u64,
}

impl Recording {
    fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let requests: Vec<Request> = text.lines().skip(1).map(request).collect();
        let (mut sizes, mut live, mut peak_live) = (HashMap::new(), 0, 0);
        for request in &requests {
            match *request {
                Request::Allocate { id, size } => {
                    sizes.insert(id, size);
                    live += size;
                }
                Request::Free { id } => live -= sizes[&id],
            }
            peak_live = peak_live.max(live);
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        Self { name, requests, peak_live }
    }
}

fn request(line: &str) -> Request {
    let fields: Vec<&str> = line.split(',').collect();
    let id = u64::from_str_radix(fields[3].trim_start_matches("0x"), 16).unwrap();
    match fields[2] {
        "allocate" => Request::Allocate { id, size: fields[4].parse().unwrap() },
        _ => Request::Free { id },
    }
}

fn recordings() -> Vec<Recording> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cut = here.join("../../data/traces/b8799-q8_0-distinct.csv");
    let whole = here.ancestors().flat_map(|folder| {
        let name = |kind| folder.join(format!("shared/traces/old-{kind}-ub512.csv"));
        ["q8_0", "f16"].map(name)
    });
    let present = whole.filter(|path| path.exists());
    let paths = std::iter::once(cut).chain(present);
    paths.map(|path| Recording::read(&path)).collect()
}

/// Replays with work in flight behind every block; `None` where a request is refused.
fn replay(recording: &Recording, policy: &mut dyn ServedPolicy, device: &mut Simulated) -> Option<()> {
    let stream = Stream(0);
    let mut blocks: HashMap<u64, Block> = HashMap::new();
    for request in &recording.requests {
        match *request {
            Request::Allocate { id, size } => {
                let block = policy.allocate(device, size, stream).ok()?;
                device.launch(stream, 3, &[block]);
                blocks.insert(id, block);
            }
            Request::Free { id } => policy.deallocate(device, blocks.remove(&id).unwrap(), stream),
        }
        device.advance(1);
    }
    assert_eq!(device.violations(), &[], "{}", recording.name);
    policy.trim(device, Trim::All);
    assert_eq!((policy.reserved(), device.reserved(), device.violations()), (0, 0, &[][..]));
    Some(())
}

#[test]
fn a_region_stays_within_7_percent_of_the_peak_with_at_most_60_calls() {
    for recording in recordings() {
        let mut device = Simulated::new(CARD, GRANULE);
        replay(&recording, &mut Ours::default(), &mut device).unwrap();
        let (reserved, peak) = (device.peak_reserved(), recording.peak_live);
        assert!(reserved <= peak + peak * 7 / 100 + GRANULE, "{}: {reserved} for {peak}", recording.name);
        assert!(device.calls().map <= 60, "{}: {} maps", recording.name, device.calls().map);
    }
}

#[test]
fn a_region_completes_at_a_budget_of_102_percent_of_the_peak() {
    for recording in recordings() {
        let budget = (recording.peak_live + recording.peak_live / 50).next_multiple_of(GRANULE);
        let mut device = Simulated::new(budget, GRANULE);
        replay(&recording, &mut Ours::default(), &mut device).expect(&recording.name);
    }
}

#[test]
fn slots_stay_within_a_quarter_of_the_peak_and_complete_at_a_budget_of_110_percent() {
    let options = OursOptions { regions: false, ..OursOptions::default() };
    for recording in recordings() {
        let peak = recording.peak_live;
        let mut device = Simulated::new(CARD, 512);
        replay(&recording, &mut Ours::new(options), &mut device).unwrap();
        assert!(
            device.peak_reserved() <= peak * 5 / 4 + 4096,
            "{}: {}",
            recording.name,
            device.peak_reserved()
        );
        assert!(device.calls().allocate <= 100, "{}: {}", recording.name, device.calls().allocate);
        let mut device = Simulated::new(peak + peak / 10, 512);
        replay(&recording, &mut Ours::new(options), &mut device).expect(&recording.name);
    }
}

#[test]
fn a_replay_gives_the_same_calls_every_time() {
    for recording in recordings() {
        let sizes = || {
            let mut device = Simulated::new(CARD, GRANULE);
            replay(&recording, &mut Ours::default(), &mut device).unwrap();
            device.driver_sizes().to_vec()
        };
        assert_eq!(sizes(), sizes());
    }
}
