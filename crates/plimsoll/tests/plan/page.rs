//! Tests of `plimsoll plan --html`: the page is complete without its script and loads nothing.

use serde_json::Value;

use super::{plimsoll, specimen, text};

fn page(cards: &[&str], flags: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let model = specimen("l8", folder.path());
    let file = folder.path().join("plan.html");
    let mut words = vec!["plan", "--html", file.to_str().unwrap()];
    for card in cards {
        words.extend(["--card", card]);
    }
    words.extend(["--", "-m", model.to_str().unwrap()]);
    words.extend(flags);
    let output = plimsoll(&words);
    assert!(output.status.code().is_some_and(|status| status < 2), "{}", text(&output.stderr));
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn every_point_is_in_the_table_and_in_the_data_and_was_planned() {
    let card = "name=RTX4090,total=24564MiB,free=10000MiB,cc=8.9";
    let page = page(&[card], &["-c", "9999"]);
    let (_, data) = page.split_once("id=\"points\">").unwrap();
    let data: Value = serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap();
    let points = data["points"].as_array().unwrap();
    assert_eq!(page.matches("<tr data-point=").count(), points.len());
    assert!(points.len() > 60 && points.len() < 80, "{}", points.len());
    let requested = usize::try_from(data["asked"].as_u64().unwrap()).unwrap();
    assert_eq!(points[requested]["context"], 10_240);
    let free = data["cards"][0]["free"].as_u64().unwrap();
    let peak = |point: &Value| {
        point["cards"][0].as_array().unwrap().iter().map(|term| term.as_u64().unwrap()).sum::<u64>()
    };
    let largest = points
        .iter()
        .filter(|point| peak(point) <= free)
        .map(|point| point["context"].as_u64().unwrap())
        .max();
    assert_eq!(largest, Some(37_376), "the largest that fits is one of the points");
    assert!(
        page.contains("<td>37376</td>") && page.contains("<tr data-point=\"5\" class=\"now\">"),
        "{page}"
    );
}

#[test]
fn the_page_asks_nobody_for_anything_and_reads_without_a_script() {
    let page = page(&["name=a<b>,total=8GiB", "name=c,total=8GiB,free=6GiB"], &["-c", "8192"]);
    for foreign in ["http:", "https:", "src=", "@import", "url(\"", "href="] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert!(page.contains("a&lt;b&gt;") && !page.contains("a<b>"), "names are escaped");
    let (before, _) = page.split_once("<script").unwrap();
    for needed in
        ["<label for=\"context\">", "prefers-color-scheme:dark", "fits, ", ", peak ", "load line", "<thead>"]
    {
        assert!(before.contains(needed), "{needed}");
    }
    // the slider is of no use without the script, and is not there without it
    assert!(before.contains("id=\"slide\" hidden"));
    for letter in ["O", "W", "K", "C", "X", "P"] {
        assert!(before.contains(&format!(">{letter}</text>")), "{letter}");
    }
}
