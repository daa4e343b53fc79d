//! `countersign bench` measures every part. What it measures is no claim of a test's.

use crate::support::{Countersign, Folder, run};

const TINY: [&str; 9] = ["bench", "--seconds", "0.01", "--rounds", "2", "--rows", "40", "--dir", "."];

#[test]
fn every_part_is_measured_and_told_as_json() {
    let folder = Folder::new("bench");
    let ran = Countersign::new(&TINY).arguments(&["--json"]).within(&folder).run();
    assert_eq!(ran.code, 0, "{ran:?}");
    let report = ran.json();
    assert_eq!(report["rounds"], 2);
    assert!(report["processors"].as_u64().unwrap() > 0);
    let parts = report["parts"].as_array().unwrap();
    let names: Vec<&str> = parts.iter().map(|part| part["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["evaluate", "consume", "start", "expire"]);
    for part in parts {
        let figures = part["figures"].as_array().unwrap();
        for figure in figures {
            let (lowest, highest) = (figure["lowest"].as_f64().unwrap(), figure["highest"].as_f64().unwrap());
            assert!((lowest..=highest).contains(&figure["median"].as_f64().unwrap()), "{figure}");
            let once = figure["name"] == "size of the binary" || part["name"] == "expire";
            let rounds = if once { 1 } else { 2 };
            assert_eq!(figure["rounds"], rounds, "{figure}");
        }
        for target in part["targets"].as_array().unwrap() {
            assert!(target["met"].is_boolean() && target["median"].is_number(), "{target}");
            assert!(target["at_most"].is_number() != target["at_least"].is_number(), "{target}");
            assert!(figures.iter().any(|figure| figure["name"] == target["name"]), "{target}");
        }
    }
    for figure in [
        "evaluate above the empty call, 64 in flight: CPU",
        "a rule more, 64 in flight: CPU",
        "evaluate to empty call, 64 in flight: rate",
        "consume, 64 callers, to 64 to a commit: rate",
        "consume, 1 caller, above a commit and a call: p99",
        "start to SERVING, 40 rows",
        "idle memory",
        "first page, many rows to few: CPU",
        "consume, 1 caller, meanwhile to quiet: p99",
        "until 40 rows are expired",
    ] {
        let held = parts.iter().flat_map(|part| part["targets"].as_array().unwrap());
        assert!(held.into_iter().any(|target| target["name"] == figure), "{figure}");
    }
    assert!(folder.names().is_empty(), "what it made is removed: {:?}", folder.names());
}

#[test]
fn one_part_alone_is_measured_for_people() {
    let folder = Folder::new("bench-one");
    let ran = Countersign::new(&TINY).arguments(&["--only", "evaluate"]).within(&folder).run();
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.in_order(&["evaluate\n", "empty call, 64 in flight: CPU", "us/call", "a rule more, 64 in flight: CPU"]);
    assert!(!ran.out.contains("consume"), "{ran:?}");
}

#[test]
fn a_folder_that_is_not_there_is_named_and_nonsense_is_refused() {
    let ran = run(&["bench", "--dir", "nowhere-at-all", "--seconds", "0.01"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("nowhere-at-all"), "{ran:?}");
    for nonsense in
        [["--seconds", "0"], ["--seconds", "NaN"], ["--rounds", "0"], ["--rows", "0"], ["--only", "nothing"]]
    {
        assert_eq!(run(&["bench", nonsense[0], nonsense[1]]).code, 2, "{nonsense:?}");
    }
}
