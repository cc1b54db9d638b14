use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use plimsoll_base::Bytes;
use plimsoll_fuzz::mutants;

use super::read::{Entry, Reader};
use super::*;

fn about() -> About {
    About {
        schema: About::SCHEMA.to_owned(),
        host: "annsbox".to_owned(),
        every_ms: 500,
        command: ["python3", "/home/ann/train.py", "--epochs", "3", "bluebird"].map(str::to_owned).to_vec(),
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

/// A record of three samples, with an event and an end; and where its frames end.
fn record() -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(&about(), &mut bytes);
    let mut ends = vec![bytes.len()];
    encoder.sample(0, &look(&[(0, 1 << 20), (1, 100), (9, u64::MAX)]), &mut bytes);
    ends.push(bytes.len());
    encoder.sample(500, &look(&[(0, 1 << 20), (1, 90_000), (9, 0)]), &mut bytes);
    ends.push(bytes.len());
    encoder.event(700, Source::Kernel, "Out of memory: Killed process 4711 (bluebird)", &mut bytes);
    ends.push(bytes.len());
    encoder.sample(1000, &look(&[(0, 5)]), &mut bytes);
    ends.push(bytes.len());
    encoder.end(1100, "was killed by signal 9 (SIGKILL)", &mut bytes);
    ends.push(bytes.len());
    (bytes, ends)
}

#[test]
fn written_samples_are_read_back_and_ended_series_have_no_value() {
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
            (0, vec![Some(1 << 20), Some(100), Some(u64::MAX)]),
            (500, vec![Some(1 << 20), Some(90_000), Some(0)]),
            (1000, vec![Some(5), None, None]),
        ]
    );
    assert_eq!(reader.left(), 0);
}

#[test]
fn a_torn_tail_costs_the_line_that_was_being_written_and_no_other() {
    let (bytes, ends) = record();
    // Declarations stand in the sample that needs them.
    let entries = |bytes: &[u8]| {
        let reader = Reader::new(bytes)?;
        let reported = reader.filter(|entry| !matches!(entry, Entry::Figure(_)));
        Ok::<_, ReadRecordError>(reported.count())
    };
    for cut in 0..bytes.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count();
        match (whole, entries(&bytes[..cut])) {
            (0, Err(_)) => {}
            // The last bytes of a flush carry no data, so the line before them may be there already.
            (_, Ok(read)) => assert!(read + 1 == whole || read == whole, "{read} of {whole}, cut at {cut}"),
            (_, Err(error)) => panic!("{error}, cut at {cut}"),
        }
    }
}

#[test]
fn a_summary_says_who_grew_what_moved_and_how_it_ended() {
    let (bytes, _) = record();
    let summary = summarise(&bytes).unwrap();
    assert_eq!((summary.samples, summary.duration_ms, summary.torn_bytes), (3, 1100, 0));
    let grown = &summary.figures[1];
    assert_eq!((grown.first, grown.last, grown.peak, grown.peak_ms), (100, 90_000, 90_000, 500));
    let moves: Vec<(usize, Bytes)> = summary.moves.iter().map(|over| (over.figure, over.size())).collect();
    assert_eq!(moves, [(1, Bytes::kib(89_900)), (0, Bytes::kib((1 << 20) - 5))]);
    assert_eq!(summary.end.as_deref(), Some("was killed by signal 9 (SIGKILL)"));
    assert_eq!(summary.events[0].time_ms, 700);
}

/// The liveliest machine that there may be: 300 figures, of which every one changes by megabytes in every
/// sample.
#[test]
fn a_day_at_two_samples_a_second_stays_under_twenty_megabytes_on_any_machine() {
    const DAY: u64 = 24 * 3600 * 2;
    // A fiftieth of a day, less the cost of the beginning.
    let samples = DAY / 50;
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(&about(), &mut bytes);
    for sample in 0..samples {
        let values: Vec<(u64, u64)> =
            (0..300).map(|number| (number, (sample * 7919 + number * 104_729) % 65_521)).collect();
        encoder.sample(sample * 500, &look(&values), &mut bytes);
    }
    let a_day = (bytes.len() - (512 << 10)) * 50 + (512 << 10);
    assert!(a_day < 20_000_000, "{a_day} bytes");
    let summary = summarise(&bytes).unwrap();
    assert_eq!(summary.samples, samples);
    let last = |figure: u64| {
        summary.figures.iter().find(|reported| reported.figure == self::figure(figure)).unwrap().last
    };
    assert_eq!(last(0), (samples - 1) * 7919 % 65_521, "fast figures are never late");
}

fn zipped(text: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap()
}

fn lines(bytes: &[u8]) -> String {
    let mut text = String::new();
    GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn an_unknown_line_is_skipped_and_another_version_is_reported() {
    let (bytes, _) = record();
    let text = lines(&bytes);
    let (head, rest) = text.split_once('\n').unwrap();
    let later = format!(
        "{head}\n{{\"weather\":[1]}}\n{{\"figure\":{{\"group\":\"moon\",\"unit\":\"lux\",\"subject\":\"\",\"what\":\"x\"}}}}\n"
    );
    let zip = zipped(&later);
    let mut reader = Reader::new(&zip).unwrap();
    reader.by_ref().for_each(drop);
    let figure = &reader.figures()[0];
    assert_eq!((figure.group, figure.unit), (Group::Machine, Unit::Count));
    assert_eq!(summarise(&zipped(&format!("{head}\n{{\"weather\":[1]}}\n{rest}"))).unwrap().samples, 3);
    let third = head.replace("\"version\":2", "\"version\":3") + "\n";
    let later = summarise(&zipped(&third)).unwrap_err();
    assert_eq!(later, ReadRecordError::Version { found: 3 });
    assert!(later.to_string().contains("version 3") && later.to_string().contains("reads version 2"));
    assert_eq!(summarise(b"GGUF").unwrap_err(), ReadRecordError::Name);
    assert_eq!(summarise(&zipped("{}\n")).unwrap_err(), ReadRecordError::About);
}

/// A few kilobytes of gzip that stand for a line of 64 MiB.
#[test]
fn a_line_without_end_is_not_kept() {
    let (bytes, _) = record();
    let head = lines(&bytes).lines().next().unwrap().to_owned();
    let zip = zipped(&format!("{head}\n{}", "x".repeat(64 << 20)));
    let mut reader = Reader::new(&zip).unwrap();
    assert_eq!(reader.next(), None);
    assert!(reader.left() <= 1 << 20);
}

/// Numbers and times that no encoder writes.
#[test]
fn numbers_beyond_all_bounds_are_read_without_a_panic() {
    let (bytes, _) = record();
    let text = lines(&bytes);
    for (from, to) in [
        ("\"time_ms\":1000", "\"time_ms\":18446744073709551615"),
        ("\"time_ms\":500", "\"time_ms\":0"),
        ("[[0,", "[[9223372036854775807,"),
        ("[[0,", "[[0,-9223372036854775808],[0,"),
        ("\"changes\":[", "\"changes\":[[0,null],[0,null],"),
    ] {
        let damaged = text.replace(from, to);
        assert_ne!(damaged, text);
        assert_eq!(summarise(&zipped(&damaged)).unwrap().samples, 3, "{to}");
    }
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
            let is_sample = reader.by_ref().any(|entry| matches!(entry, Entry::Sample { .. }));
            proptest::prop_assert!(is_sample);
            for (number, figure) in reader.figures().iter().enumerate() {
                let expected = values.iter().find(|(number, _)| self::figure(**number) == *figure);
                proptest::prop_assert_eq!(reader.value(number), expected.map(|(_, value)| *value));
            }
        }
    }
}

/// Lines of JSON that make no sense where they stand, and files with flipped, lost and doubled bytes. Few
/// here; a million with `PLIMSOLL_FUZZ=1000000 cargo test --release -p plimsoll-telemetry --lib
/// record::tests::hostile`.
#[test]
fn hostile_records_are_read_as_far_as_they_make_sense() {
    let rounds = std::env::var("PLIMSOLL_FUZZ").ok().and_then(|count| count.parse().ok()).unwrap_or(3000);
    let whole = lines(&record().0);
    let mut state = 1_u64;
    let mut dice = move |sides: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % sides.max(1)
    };
    let mut read = 0;
    for round in 0..rounds {
        let mut strange: Vec<&str> = whole.lines().collect();
        if round % 2 == 0 {
            for _ in 0..dice(6) {
                let (from, to) = (dice(strange.len()), 1 + dice(strange.len() - 1));
                let line = strange[from];
                strange.insert(to, line);
            }
        }
        let mut bytes = zipped(&(strange.join("\n") + "\n"));
        for _ in 0..dice(3) {
            let at = dice(bytes.len());
            match dice(3) {
                0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (at % 8)),
                1 => bytes.truncate(at),
                _ => bytes.extend_from_within(at.min(bytes.len())..),
            }
        }
        if let Ok(summary) = summarise(&bytes) {
            read += 1;
            assert!(summary.figures.len() <= 8192 && summary.events.len() <= 2000);
        }
    }
    assert!(read > rounds / 4, "{read} of {rounds} were read");
}

#[test]
fn million_recordings() {
    let mut record = Vec::new();
    let mut encoder = Encoder::begin(&About::default(), &mut record);
    let mut look = Look::default();
    for time in 0..6 {
        look.push(Figure::new(Group::Card, Unit::Bytes, "GPU-aaaa", "used"), Pace::Fast, time << 30);
        encoder.sample(time * 100, &look, &mut record);
        encoder.event(time * 100, Source::Kernel, "NVRM: out of memory", &mut record);
    }
    encoder.end(700, "0", &mut record);
    assert!(summarise(&record).is_ok());
    mutants(&[&record], &[&[0x80; 9], &[0xFF; 4], b"{}"], |mutant| drop(summarise(mutant)));
}
