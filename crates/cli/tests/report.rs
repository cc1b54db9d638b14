//! Tests of the memory bars, charts, HTML pages and tables of reports.

use plimsoll_base::Bytes;
use plimsoll_report::{
    Bar, Chart, Mark, ReportPage, RoundSteps, Segment, TERMS, TrendCourse, aligned, bars, round_ticks,
    shortened, wrapped,
};

fn bar(weights: u64) -> Bar {
    Bar {
        label: "a<b>".to_owned(),
        segments: vec![Segment { style: TERMS[1], bytes: Bytes::mib(weights) }],
        total: Bytes::mib(100),
        full: Bytes::mib(weights.max(100)),
    }
}

#[test]
fn an_overflow_of_a_byte_is_seen_beyond_the_line() {
    assert_eq!(bar(50).text(4), "██··┃");
    assert_eq!(bar(100).text(4), "████┃");
    assert_eq!(bar(101).text(4), "███┃█");
    assert_eq!(bar(u64::MAX >> 20).text(4), "┃████");
}

#[test]
fn a_bar_is_as_wide_as_its_room_whatever_it_shows() {
    for weights in [0, 1, 99, 100, 101, 157, 1000, 1 << 40] {
        assert_eq!(bar(weights).text(60).chars().count(), 61, "{weights}");
    }
    // 157 of 100: the card ends at 100/157 of the width.
    assert_eq!(bar(157).text(60).find('┃'), Some(3 * (60 * 100 / 157)));
}

#[test]
fn a_document_escapes_its_names_and_marks_the_load_line_once() {
    let svg = bars("a<b>", &["e<f>".to_owned()], &[("c<d>".to_owned(), bar(50))]);
    assert_eq!(svg.matches("load line").count(), 1);
    assert!(
        !svg.contains("<b>")
            && !svg.contains("<d>")
            && !svg.contains("<f>")
            && svg.contains("W weights 50 MiB")
    );
}

#[test]
fn both_ends_are_labelled_and_hostile_names_are_escaped() {
    let mut course = TrendCourse::default();
    for at in 0..10 {
        course.push(at, 100 + at);
    }
    let text = |value: u64| format!("{value} B");
    let courses = [("a<b>".to_owned(), &course)];
    let mut chart =
        Chart::of_courses("memory <host>", &courses, 0, ("0", "9"), &text, RoundSteps::Binary).unwrap();
    chart.marks.push(Mark { at: 5, text: "killed & gone".to_owned(), id: None });
    let svg = chart.svg();
    for part in ["100 B", "108 B", "a&lt;b&gt;: 109 B", "memory &lt;host&gt;", "killed &amp; gone"] {
        assert!(svg.contains(part), "{part} in {svg}");
    }
    assert_eq!(svg.matches('<').count(), svg.matches('>').count());
}

#[test]
fn nothing_is_no_chart_and_one_value_is_a_flat_line() {
    let text = |value: u64| value.to_string();
    assert!(Chart::of_courses("", &[], 0, ("", ""), &text, RoundSteps::Binary).is_none());
    let mut course = TrendCourse::default();
    course.push(7, u64::MAX);
    let courses = [(String::new(), &course)];
    let chart = Chart::of_courses("", &courses, 0, ("", ""), &text, RoundSteps::Binary).unwrap();
    assert!(chart.svg().contains(&u64::MAX.to_string()));
}

#[test]
fn points_are_marked_names_stay_inside_and_the_axis_is_broken_only_where_it_says_so() {
    let text = |value: u64| format!("{value} tokens/s");
    let long = "a name of a model that is very long indeed ".repeat(4) + &"x".repeat(60);
    let lines =
        [(long.clone(), vec![(106, 1751), (206, 900), (300, 193)]), ("one".to_owned(), vec![(300, 5)])];
    let chart = Chart::of_points(&long, &lines, &text, RoundSteps::Decimal).unwrap();
    assert_eq!((chart.x, chart.y), ((0, 300), (0, 2000)));
    let labels: Vec<&str> = chart.y_ticks.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(labels, ["0 tokens/s", "500 tokens/s", "1000 tokens/s", "1500 tokens/s", "2000 tokens/s"]);
    let svg = chart.svg();
    assert_eq!(svg.matches("class=\"dot c0\"").count(), 2, "in the plot and in the key: {svg}");
    assert!(!svg.contains("class=\"break\""));
    let widest = svg
        .lines()
        .filter_map(|line| line.split_once("<text class=\"ink\" x=\"776\""))
        .map(|(_, rest)| rest.split(['>', '<']).nth(1).unwrap_or_default().chars().count());
    assert!(widest.max() <= Some(27));
    let flat = [("flat".to_owned(), vec![(1, 1 << 30), (2, (1 << 30) + 5)])];
    let chart = Chart::of_points("", &flat, &text, RoundSteps::Binary).unwrap();
    assert!(chart.y.0 > 0 && chart.svg().contains("class=\"break\""));
}

#[test]
fn one_point_and_hostile_values_are_drawn() {
    let text = |value: u64| value.to_string();
    assert!(Chart::of_points("", &[("none".to_owned(), vec![])], &text, RoundSteps::Decimal).is_none());
    for value in [0, 1, u64::MAX] {
        for steps in [RoundSteps::Binary, RoundSteps::Decimal] {
            let lines = [("one".to_owned(), vec![(value, value)])];
            let chart = Chart::of_points("", &lines, &text, steps).unwrap();
            assert!((2..=6).contains(&chart.y_ticks.len()), "{value}: {:?}", chart.y_ticks);
            assert!(chart.svg().contains("class=\"dot c0\""));
        }
    }
}

#[test]
fn steps_hold_their_value_until_the_next_sample() {
    let mut course = TrendCourse::default();
    for (at, value) in [(0, 1), (2, 1), (3, 5)] {
        course.push(at, value);
    }
    let text = |value: u64| value.to_string();
    let courses = [(String::new(), &course)];
    let chart = Chart::of_courses("", &courses, 0, ("", ""), &text, RoundSteps::Binary).unwrap();
    // The second series is the line; its last value holds to the end of the axis.
    assert_eq!(chart.series[1].points, [(0, 1), (2, 1), (3, 1), (3, 5), (3, 5)]);
}

#[test]
fn ticks_are_round_and_few() {
    assert_eq!(round_ticks(0, 300, RoundSteps::Decimal), [0, 100, 200, 300]);
    assert_eq!(round_ticks(0, 8192, RoundSteps::Binary), [0, 2048, 4096, 6144, 8192]);
    assert_eq!(round_ticks(7, 7, RoundSteps::Decimal), [7]);
    for high in [1, 2, 9, 1001, 1 << 40, u64::MAX - 1, u64::MAX] {
        for steps in [RoundSteps::Binary, RoundSteps::Decimal] {
            let ticks = round_ticks(0, high, steps);
            assert!((2..=6).contains(&ticks.len()), "{high}: {ticks:?}");
        }
    }
}

#[test]
fn an_axis_starts_at_zero_unless_the_course_is_nearly_flat() {
    let text = |value: u64| value.to_string();
    for (values, axis) in
        [([193, 1751], (0, 2000)), ([24, 24], (0, 30)), ([1000, 1002], (1000, 1002)), ([0, 0], (0, 1))]
    {
        let lines = [(String::new(), vec![(0, values[0]), (1, values[1])])];
        assert_eq!(Chart::of_points("", &lines, &text, RoundSteps::Decimal).unwrap().y, axis);
    }
}

#[test]
fn hostile_names_are_escaped_everywhere_and_nothing_is_loaded() {
    let evil = "<script>\"&x";
    let mut page = ReportPage::new(evil);
    page.verdict(evil, true);
    page.heading(evil);
    page.text(evil);
    page.lines(evil);
    page.list(evil, &[evil.to_owned()]);
    page.table(&[evil], &[vec![evil.to_owned()]]);
    let html = page.finish();
    assert!(!html.contains("<script") && html.contains("&lt;script&gt;&quot;&amp;x"));
    for foreign in ["http:", "https:", "src=", "@import", "href=", "url("] {
        assert!(!html.contains(foreign), "{foreign}");
    }
}

#[test]
fn columns_align_and_short_rows_are_allowed() {
    let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
    let rows = [row(&["policy", "reserved"]), row(&["é", "1"]), row(&["b"])];
    assert_eq!(aligned(&rows), "policy  reserved\né              1\nb\n");
    assert_eq!(aligned(&[row(&["a\nb"])]), "a\\nb\n", "a cell makes no row");
    assert_eq!(aligned(&[]), "");
}

#[test]
fn text_is_broken_between_words_and_a_long_word_stays_whole() {
    assert_eq!(wrapped("one two three", 7, 2), ["one two", "  three"]);
    assert_eq!(wrapped("", 7, 2), [""]);
    assert_eq!(wrapped("unbreakable", 3, 2), ["unbreakable"]);
    assert_eq!(wrapped("a unbreakable b", 3, 1), ["a", " unbreakable", " b"]);
    assert_eq!(wrapped("a  b", 10, 0), ["a  b"], "columns stay");
    assert_eq!([shortened("éééé", 4), shortened("ééééé", 4), shortened("a", 0)], ["éééé", "ééé…", "…"]);
    assert_eq!(wrapped("a\nb \u{1b}[1m", 20, 0), ["a\\nb \\u{1b}[1m"], "foreign text breaks no line");
    assert_eq!(wrapped("é é é", 3, 0), ["é é", "é"], "characters count, not bytes");
}

#[test]
fn no_peak_is_lost_however_long_it_is() {
    let mut course = TrendCourse::default();
    for at in 0..172_800 {
        course.push(at, if at == 77_777 { 9 } else { 1 });
    }
    assert!(course.buckets().len() <= 720);
    assert_eq!((course.lowest(), course.highest()), (Some(1), Some(9)));
    let peak = course.buckets().iter().find(|bucket| bucket.highest == 9).unwrap();
    assert!(peak.from <= 77_777 && 77_777 <= peak.until);
    assert_eq!(course.buckets().last().unwrap().until, 172_799);
}
