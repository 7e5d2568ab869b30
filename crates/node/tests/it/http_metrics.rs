//! `/metrics` as a strict reader sees it, and the events.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};

use serde_json::Value;
use tempfile::tempdir;

use crate::http_client::{Reply, connect, fill, get, request, send};
use crate::node::Node;
use crate::tool::{ask, open_store, run, small_demo};

/// A page of metrics in the text format of `OpenMetrics`.
#[derive(Debug, Default)]
struct Page {
    kinds: BTreeMap<String, String>,
    /// By name and labels as they are written.
    samples: BTreeMap<String, f64>,
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Checks `a="b",c="d"`; what is escaped stays so.
fn check_labels(labels: &str) {
    let mut rest = labels;
    let mut names = BTreeSet::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{labels}"));
        assert!(is_name(name) && names.insert(name), "{labels}");
        let mut escaped = false;
        let end = after.find(|c| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        rest = &after[end.unwrap_or_else(|| panic!("{labels}")) + 1..];
        rest = match rest.strip_prefix(',') {
            Some(more) => more,
            None if rest.is_empty() => rest,
            None => panic!("{labels}"),
        };
    }
}

impl Page {
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let body = text.strip_suffix("# EOF\n").expect("the end is marked");
        let mut family = String::new();
        for line in body.lines() {
            assert!(!line.is_empty() && line.trim() == line, "{line:?}");
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (what, name) = (words.next().unwrap(), words.next().unwrap());
                let rest = words.next().unwrap();
                assert!(is_name(name) && name.starts_with("secateur_"), "{line}");
                match what {
                    "HELP" => {
                        name.clone_into(&mut family);
                        assert!(!page.kinds.contains_key(name), "{name} is there twice");
                    }
                    "TYPE" => {
                        assert_eq!(name, family, "HELP and TYPE belong together");
                        page.kinds.insert(name.into(), rest.into());
                    }
                    other => panic!("{other}"),
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').unwrap()),
                None => (series, ""),
            };
            check_labels(labels);
            let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{line}: {family}"));
            let allowed: &[&str] = match page.kinds[&family].as_str() {
                "counter" => &["_total"],
                "gauge" => &[""],
                "info" => &["_info"],
                "histogram" => &["_bucket", "_sum", "_count"],
                other => panic!("{other}"),
            };
            assert!(allowed.contains(&suffix), "{line}");
            let value: f64 = value.parse().unwrap();
            assert!(page.samples.insert(series.into(), value).is_none(), "{series} twice");
        }
        page.check_histograms();
        page
    }

    /// Buckets never fall, and the last holds everything.
    fn check_histograms(&self) {
        for (series, count) in self.samples.iter().filter(|(name, _)| name.contains("_count{")) {
            let labels = series.split_once('{').unwrap().1.trim_end_matches('}');
            let bucket = series.split_once("_count{").unwrap().0.to_owned() + "_bucket{";
            let mut buckets: Vec<(f64, f64)> = self
                .samples
                .iter()
                .filter(|(name, _)| name.starts_with(&bucket) && name.contains(labels))
                .map(|(name, value)| {
                    let le = name.split("le=\"").nth(1).unwrap().split('"').next().unwrap();
                    (le.parse().unwrap(), *value)
                })
                .collect();
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{series}: {buckets:?}");
            let last = buckets.last().unwrap();
            assert!(last.0.is_infinite() && (last.1 - count).abs() < 0.5, "{series}");
        }
    }

    #[track_caller]
    fn value(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("no {series} in {self:#?}"))
    }

    /// A gauge must say what a field of the status says.
    #[track_caller]
    fn says(&self, series: &str, field: &Value) {
        let wanted = field.as_u64().unwrap_or_else(|| panic!("{series}: {field}"));
        #[expect(clippy::cast_precision_loss, reason = "a page of metrics is in such numbers")]
        let wanted = wanted as f64;
        assert!((self.value(series) - wanted).abs() < 0.5, "{series}: {wanted}");
    }
}

fn scrape(node: &Node) -> Page {
    let accept = "accept: application/openmetrics-text; version=1.0.0";
    let reply = send(&node.http, "GET /metrics", &[accept], b"").is(200);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(reply.header("content-type"), Some(kind));
    Page::parse(std::str::from_utf8(&reply.body).unwrap())
}

#[test]
fn the_page_of_metrics_is_well_formed_and_says_what_the_status_says() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    let filled = fill(&data);
    open_store(&data).register_consumer("in-dex.er", secateur_core::Strength::Soft).unwrap();
    let node = Node::start(&data, "");
    let status = get(&node, "/v1/status").is(200).json();
    let page = scrape(&node);
    for (gauge, field) in [
        ("used_bytes", "used_bytes"),
        ("target_bytes", "target_bytes"),
        ("high_water_bytes", "high_water_bytes"),
        ("low_water_bytes", "low_water_bytes"),
        ("hard_water_bytes", "hard_water_bytes"),
        ("disk_bytes", "disk_bytes"),
        ("arena_bytes", "arena_bytes"),
        ("quarantined_bytes", "quarantined_bytes"),
        ("head_block", "head"),
        ("finalized_block", "finalized"),
        ("export_head_block", "export_head"),
        ("oldest_kept_block", "oldest_kept_block"),
        ("boundary_block", "pruned_before_block"),
        ("last_prune_timestamp_seconds", "last_prune_at"),
        ("journal_entries", "journal_entries"),
        ("estimated_kept_bytes", "estimated_kept_bytes"),
        ("budget_blocks", "budget_blocks"),
        ("budget_seconds", "budget_seconds"),
        ("to_high_water_seconds", "seconds_to_high_water"),
    ] {
        page.says(&format!("secateur_history_{gauge}"), &status[field]);
    }
    page.says("secateur_history_head_block", &filled.head.into());
    for (series, wanted) in [
        ("secateur_history_up", 1),
        ("secateur_history_poisoned", 0),
        ("secateur_history_past_due_blocks", 0),
        ("secateur_history_prune_running", 0),
        ("secateur_history_hold_active{hold=\"export:in-dex.er\",strength=\"soft\"}", 1),
        ("secateur_follow_enabled", 0),
        ("secateur_build_info{version=\"0.1.0\"}", 1),
        ("secateur_http_connections", 1),
    ] {
        page.says(series, &wanted.into());
    }
    let alarms = status["alarms"].as_array().unwrap().len();
    page.says("secateur_history_alarms", &alarms.into());
    let hold = "secateur_history_hold_limit_block{hold=\"min_keep\",strength=\"hard\"}";
    page.says(hold, &status["holds"][1]["limit"]);
    node.stop();
}

#[test]
fn requests_are_counted_by_route_and_status_and_strangers_share_a_label() {
    let place = tempdir().unwrap();
    let node = Node::start(&place.path().join("data"), "");
    for number in 0..30 {
        get(&node, &format!("/v1/blocks/{number}")).is(404);
        get(&node, &format!("/nothing/{number}")).is(404);
    }
    send(&node.http, "DELETE /v1/status", &[], b"").is(405);
    let page = scrape(&node);
    let count = |labels: &str| page.value(&format!("secateur_http_requests_total{{{labels}}}"));
    for (labels, wanted) in [
        ("route=\"/v1/blocks/{block}\",code=\"404\"", 30.0),
        ("route=\"other\",code=\"404\"", 30.0),
        ("route=\"other\",code=\"405\"", 1.0),
    ] {
        assert!((count(labels) - wanted).abs() < 0.5, "{labels}");
    }
    let seconds = "secateur_http_request_duration_seconds_count{route=\"other\"}";
    assert!((page.value(seconds) - 31.0).abs() < 0.5);
    node.stop();
}

#[test]
fn blocks_that_are_due_and_may_not_be_cut_yet_are_counted() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    small_demo(&data, 60);
    // The daemon is told to rest, so that what is due stays so.
    open_store(&data).set_pruning_enabled(false).unwrap();
    let file = data.with_extension("toml");
    std::fs::write(&file, "[policy]\nretain_blocks = 10\nmin_keep_blocks = 1\n").unwrap();
    let node = Node::start(&data, &format!("--config {}", file.display()));
    let plan = get(&node, "/v1/plan").is(200).json();
    assert!(plan["blocks"].as_u64().unwrap() > 0, "{plan}");
    let page = scrape(&node);
    page.says("secateur_history_past_due_blocks", &plan["blocks"]);
    page.says("secateur_history_prune_due", &1.into());
    page.says("secateur_history_pruning_enabled", &0.into());
    assert!(page.value("secateur_history_alarms") >= 1.0);
    node.stop();
}

#[test]
fn blocks_and_bytes_that_were_cut_are_counted_and_how_long_it_took() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    small_demo(&data, 60);
    open_store(&data).set_pruning_enabled(false).unwrap();
    let node = Node::start(&data, "");
    let counts = |page: &Page| {
        ["cut_blocks_total", "cut_bytes_total", "prune_duration_seconds_count"]
            .map(|name| page.value(&format!("secateur_history_{name}")))
    };
    assert!(counts(&scrape(&node)).into_iter().all(|count| count < 0.5));
    run(&data, "policy set retain_blocks=10").ends(0);
    let pruned = ask(&data, "prune --yes");
    let page = scrape(&node);
    page.says("secateur_history_cut_blocks_total", &pruned["blocks"]);
    assert!(counts(&page).into_iter().all(|count| count > 0.5), "{page:#?}");
    node.stop();
}

#[test]
fn whoever_listens_hears_the_status_at_once_and_again() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    small_demo(&data, 30);
    let node = Node::start(&data, "");
    let mut stream = BufReader::new(connect(&node.http));
    stream.get_mut().write_all(&request(&node.http, "GET /v1/events", &[], b"")).unwrap();
    let head = Reply::head(&mut stream);
    assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")));
    let status = get(&node, "/v1/status").is(200).json();
    let mut heard = 0;
    let mut event = String::new();
    while heard < 3 {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).unwrap(), 0, "the events ended");
        if let Some(name) = line.strip_prefix("event: ") {
            name.trim_end().clone_into(&mut event);
        } else if let Some(data) = line.strip_prefix("data: ") {
            assert_eq!(event, "status");
            let said: Value = serde_json::from_str(data).unwrap();
            assert_eq!(said["head"], status["head"]);
            assert_eq!(said["holds"], status["holds"]);
            heard += 1;
        }
    }
    node.stop();
}

#[test]
fn whoever_does_not_ask_for_openmetrics_gets_the_format_from_before_it() {
    let place = tempdir().unwrap();
    let data = place.path().join("data");
    fill(&data);
    let node = Node::start(&data, "");
    get(&node, "/v1/status").is(200);
    let reply = get(&node, "/metrics").is(200);
    let kind = reply.header("content-type");
    assert_eq!(kind, Some("text/plain; version=0.0.4; charset=utf-8"));
    let page = String::from_utf8(reply.body).unwrap();
    let has = |line: &str| assert!(page.lines().any(|found| found == line), "no {line} in\n{page}");
    has("# TYPE secateur_build_info gauge");
    has("# TYPE secateur_http_requests_total counter");
    has("# HELP secateur_http_requests_total HTTP requests that were answered, or refused.");
    has("secateur_http_requests_total{route=\"/v1/status\",code=\"200\"} 1");
    has("# TYPE secateur_http_request_duration_seconds histogram");
    has("# TYPE secateur_history_used_bytes gauge");
    let comments: Vec<_> = page.lines().filter(|line| line.starts_with('#')).collect();
    let known = |line: &&str| line.starts_with("# HELP ") || line.starts_with("# TYPE ");
    assert!(comments.iter().all(known), "{comments:?}");
    node.stop();
}
