//! Tests of memory recordings: reading back, incomplete and damaged files, redaction, and the size of a day.

use plimsoll_base::Bytes;

use super::*;

fn about() -> About {
    About {
        schema: About::SCHEMA.to_owned(),
        host: "annsbox".to_owned(),
        every_ms: 500,
        command: ["python3", "/home/ann/train.py", "--epochs", "3", "bluebird"]
            .map(str::to_owned)
            .to_vec(),
        cards: vec![CardAbout {
            uuid: "GPU-1b4e28ba-2fa1-11d2-883f-0016d3cca427".to_owned(),
            name: "NVIDIA H200".to_owned(),
            total: Bytes::gib(141),
        }],
        ..About::default()
    }
}

fn figure(number: u64) -> Figure {
    match number {
        0 => Figure::new(Group::Machine, Unit::Kib, "", "MemAvailable"),
        1 => Figure::new(Group::Process, Unit::Kib, "4711 bluebird", "resident"),
        _ => Figure::new(Group::Blocks, Unit::Count, "0 Normal", format!("order {number}")),
    }
}

fn look(values: &[(u64, u64)]) -> Look {
    let mut look = Look::default();
    for (number, value) in values {
        let pace = if *number < 2 { Pace::Fast } else { Pace::Slow };
        look.push(figure(*number), pace, *value);
    }
    look
}

/// A record of three samples, with an event, a file and an end; and where its frames end.
fn record() -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(&about(), &mut bytes);
    let mut ends = vec![bytes.len()];
    encoder.shot(When::Before, "/proc/meminfo", "MemFree: 1 kB", &mut bytes);
    ends.push(bytes.len());
    encoder.sample(0, &look(&[(0, 1 << 20), (1, 100), (9, u64::MAX)]), &mut bytes);
    ends.push(bytes.len());
    encoder.sample(500, &look(&[(0, 1 << 20), (1, 90_000), (9, 0)]), &mut bytes);
    ends.push(bytes.len());
    encoder.event(
        700,
        Source::Kernel,
        "Out of memory: Killed process 4711 (bluebird)",
        &mut bytes,
    );
    ends.push(bytes.len());
    encoder.sample(1000, &look(&[(0, 5)]), &mut bytes);
    ends.push(bytes.len());
    encoder.end(1100, "was killed by signal 9 (SIGKILL)", &mut bytes);
    ends.push(bytes.len());
    (bytes, ends)
}

#[test]
fn what_was_written_is_read_and_what_is_gone_is_gone() {
    let (bytes, _) = record();
    let mut reader = Reader::new(&bytes).unwrap();
    assert_eq!(reader.about(), &about());
    let mut seen = Vec::new();
    while let Some(entry) = reader.next() {
        if let Entry::Sample { time_ms, .. } = entry {
            let values: Vec<Option<u64>> = (0..3).map(|number| reader.value(number)).collect();
            seen.push((time_ms, values));
        }
    }
    assert_eq!(
        seen,
        [
            (0, vec![Some(1 << 20), Some(100), Some(u64::MAX - 1)]),
            (500, vec![Some(1 << 20), Some(90_000), Some(0)]),
            (1000, vec![Some(5), None, None]),
        ]
    );
    assert_eq!(reader.left(), 0);
}

/// Records of older versions stay readable: the sum is the CRC-32 of zip and Ethernet.
#[test]
fn the_sum_of_a_frame_is_the_standards() {
    assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
}

#[test]
fn a_torn_tail_costs_the_frame_that_was_being_written_and_no_other() {
    let (bytes, ends) = record();
    let entries = |bytes: &[u8]| Reader::new(bytes).map(Iterator::count);
    for cut in 0..bytes.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count();
        match whole {
            0 => assert!(entries(&bytes[..cut]).is_err()),
            whole => assert_eq!(entries(&bytes[..cut]).unwrap(), whole - 1, "cut at {cut}"),
        }
    }
}

#[test]
fn a_summary_says_who_grew_what_moved_and_how_it_ended() {
    let (bytes, _) = record();
    let summary = summarise(&bytes).unwrap();
    assert_eq!(
        (summary.samples, summary.duration_ms, summary.torn_bytes),
        (3, 1100, 0)
    );
    let grown = &summary.figures[1];
    assert_eq!(
        (grown.first, grown.last, grown.peak, grown.peak_ms),
        (100, 90_000, 90_000, 500)
    );
    let moves: Vec<(usize, Bytes)> = summary
        .moves
        .iter()
        .map(|over| (over.figure, over.size()))
        .collect();
    assert_eq!(moves, [(1, Bytes::kib(89_900)), (0, Bytes::kib((1 << 20) - 5))]);
    assert_eq!(summary.end.as_deref(), Some("was killed by signal 9 (SIGKILL)"));
    assert_eq!(summary.events[0].time_ms, 700);
}

#[test]
fn a_redacted_summary_names_nobody() {
    let (bytes, _) = record();
    let mut summary = summarise(&bytes).unwrap();
    Redaction::redact(&mut summary);
    let text = serde_json::to_string(&summary).unwrap();
    for name in ["annsbox", "bluebird", "/home", "train", "1b4e28ba"] {
        assert!(!text.contains(name), "{name} in {text}");
    }
    assert_eq!(summary.figures[1].figure.subject, "4711 process-1");
    assert!(summary.events[0].text.ends_with("4711 (process-1)"));
    assert_eq!(summary.about.command[1], "path-1.py");
}

/// The liveliest machine that there may be: 300 figures, of which every one changes by megabytes in every
/// sample.
#[test]
fn a_day_at_two_samples_a_second_stays_under_twenty_megabytes_on_any_machine() {
    const DAY: u64 = 24 * 3600 * 2;
    // A fiftieth of a day, with what the beginning may cost taken off.
    let samples = DAY / 50;
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(&about(), &mut bytes);
    for sample in 0..samples {
        let values: Vec<(u64, u64)> = (0..300)
            .map(|number| (number, (sample * 7919 + number * 104_729) % 65_521))
            .collect();
        encoder.sample(sample * 500, &look(&values), &mut bytes);
    }
    let a_day = (bytes.len() - (512 << 10)) * 50 + (512 << 10);
    assert!(a_day < 20_000_000, "{a_day} bytes");
    let summary = summarise(&bytes).unwrap();
    assert_eq!(summary.samples, samples);
    let last = |figure: u64| {
        summary
            .figures
            .iter()
            .find(|told| told.figure == self::figure(figure))
            .unwrap()
            .last
    };
    assert_eq!(
        last(0),
        (samples - 1) * 7919 % 65_521,
        "fast figures are never late"
    );
}

#[test]
fn an_unknown_frame_is_skipped_and_another_version_is_told() {
    let (mut bytes, ends) = record();
    let tail = bytes.split_off(ends[1]);
    let mut unknown = Vec::new();
    frame::write(frame::Kind::Event, b"x", &mut unknown);
    unknown[1] = 77;
    let sum = crc32fast::hash(&unknown[1..3]);
    unknown.truncate(3);
    unknown.extend_from_slice(&sum.to_le_bytes());
    bytes.extend(unknown);
    bytes.extend(tail);
    assert_eq!(summarise(&bytes).unwrap().samples, 3);
    bytes[7] = 2;
    assert_eq!(
        summarise(&bytes).unwrap_err(),
        ReadRecordError::Version { found: 2 }
    );
    assert_eq!(summarise(b"GGUF").unwrap_err(), ReadRecordError::Name);
}

proptest::proptest! {
    #[test]
    fn any_series_of_looks_comes_back(looks in proptest::collection::vec(proptest::collection::btree_map(0_u64..40, proptest::prelude::any::<u64>(), 0..20), 1..20)) {
        let mut bytes = Vec::new();
        let mut encoder = Encoder::begin(&about(), &mut bytes);
        for (time, values) in (0..).zip(&looks) {
            let values: Vec<(u64, u64)> = values.iter().map(|(number, value)| (*number, *value)).collect();
            encoder.sample(time, &look(&values), &mut bytes);
        }
        let mut reader = Reader::new(&bytes).unwrap();
        for values in &looks {
            proptest::prop_assert!(reader.next().is_some());
            for (number, figure) in reader.figures().iter().enumerate() {
                let expected = values.iter().find(|(number, _)| self::figure(**number) == *figure);
                proptest::prop_assert_eq!(reader.value(number), expected.map(|(_, value)| (*value).min(u64::MAX - 1)));
            }
        }
    }
}

/// Frames with a right sum and wrong contents, whole files with flipped, lost and doubled bytes. Few here; a
/// million with `PLIMSOLL_FUZZ=1000000 cargo test --release -p plimsoll-telemetry --lib
/// record::tests::hostile`.
#[test]
fn hostile_records_are_read_as_far_as_they_make_sense() {
    let rounds = std::env::var("PLIMSOLL_FUZZ")
        .ok()
        .and_then(|count| count.parse().ok())
        .unwrap_or(3000);
    let (whole, ends) = record();
    let mut state = 1_u64;
    let mut dice = move |sides: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % sides.max(1)
    };
    let mut read = 0;
    for round in 0..rounds {
        let mut bytes = whole.clone();
        if round % 2 == 0 {
            let end = ends[dice(ends.len())];
            let tail = bytes.split_off(end);
            for _ in 0..dice(6) {
                let kind = frame_kind(dice(6));
                let payload: Vec<u8> = (0..dice(60)).map(|_| byte(dice(256))).collect();
                frame::write(kind, &payload, &mut bytes);
            }
            bytes.extend(tail);
        }
        for _ in 0..dice(3) {
            let at = dice(bytes.len());
            match dice(3) {
                0 => bytes
                    .iter_mut()
                    .skip(at)
                    .take(1)
                    .for_each(|byte| *byte ^= 1 << (at % 8)),
                1 => bytes.truncate(at),
                _ => bytes.extend_from_within(at.min(bytes.len())..),
            }
        }
        if let Ok(mut summary) = summarise(&bytes) {
            read += 1;
            Redaction::redact(&mut summary);
            assert!(summary.figures.len() <= 8192 && summary.events.len() <= 2000);
        }
    }
    assert!(read > rounds / 4, "{read} of {rounds} were read");
}

fn frame_kind(number: usize) -> frame::Kind {
    use frame::Kind;
    [
        Kind::About,
        Kind::Figure,
        Kind::Sample,
        Kind::Event,
        Kind::Shot,
        Kind::End,
    ][number]
}

fn byte(number: usize) -> u8 {
    u8::try_from(number).unwrap()
}
