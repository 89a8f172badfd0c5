//! Can everybody use the pages? Contrast as WCAG 2.2 AA asks for it, in light and dark; every control by keyboard; and
//! what is left without scripts.

use crate::browser::Browser;
use crate::page::{self, drained};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tablegen::compare::methods::{Member, Method};
use tablegen::compare::page as compare;
use tablegen::compare::{Scenario, numbered_keys};

/// A diff with every kind of row, backend, remark and verdict on it.
fn reports() -> Vec<(&'static str, String)> {
    let (old, new) = drained();
    let (risky_old, risky_new) = page::risky();
    vec![("drain", page::page(&old, &new)), ("risk", page::page(&risky_old, &risky_new))]
}

fn comparisons() -> Vec<(&'static str, String)> {
    let before: Vec<Member> =
        (1..=5).map(|at| Member { id: format!("web-{at}"), weight: f64::from(at) }).collect();
    let scenario = Scenario { after: before[1..].to_vec(), before, keys: numbered_keys(500), rows: 65_536 };
    let outcomes = [Method::ModN, Method::Rendezvous].map(|method| scenario.outcome(&method));
    let all = compare::Comparison { change: "web-1 leaves", keys: 500, outcomes: &outcomes };
    vec![("demo", compare::page(&[], 240, all)), ("own", compare::page(&scenario.before, 500, all))]
}

/// What is to be shown before a second look: something found, something moved.
const COMPARED: &str =
    "document.getElementById('add').click(); document.getElementById('lookup').requestSubmit();
    document.querySelector('[data-remove]').dispatchEvent(new Event('pointerenter'));";

#[test]
fn everything_can_be_read_in_light_and_dark() {
    let Some(mut browser) = Browser::start() else { return };
    let pages = reports()
        .into_iter()
        .map(|page| (page, ""))
        .chain(comparisons().into_iter().map(|page| (page, COMPARED)));
    for ((name, page), prepare) in pages {
        for scheme in ["light", "dark"] {
            browser.scheme(scheme);
            browser.open(&page);
            browser.value(&format!("{{ {prepare} }}; null"));
            let audit = browser.value(include_str!("audit.js"));
            assert_eq!(audit["found"], json!([]), "{name}, {scheme}: {:#}", audit["found"]);
            assert!(audit["checked"].as_u64().unwrap() > 100, "{name}: {audit}");
        }
    }
    browser.is_silent();
}

/// Names whatever has the focus, and how that shows.
const FOCUSED: &str = "(() => { const one = document.activeElement; if (!one || one === document.body) return null;
    window.stops ??= new Map(); if (!window.stops.has(one)) window.stops.set(one, window.stops.size);
    const style = getComputedStyle(one);
    return { stop: window.stops.get(one), ring: style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth), name: one.outerHTML.slice(0, 90) };
})()";

/// Everything that a pointer can use: controls, and boxes that scroll.
const WANTED: &str = "(() => { const can = (one) => one.checkVisibility() && !one.disabled;
    const controls = [...document.querySelectorAll('button, input, select, textarea, a[href], [onclick]')].filter(can);
    const scrolls = [...document.querySelectorAll('body *')].filter((one) => /auto|scroll/.test(getComputedStyle(one).overflowX + getComputedStyle(one).overflowY)
        && (one.scrollWidth > one.clientWidth || one.scrollHeight > one.clientHeight));
    return [...controls, ...scrolls].filter((one) => !window.stops?.has(one)).map((one) => one.outerHTML.slice(0, 90)); })()";

/// Presses Tab until the focus leaves the page: it reaches everything, and shows where it is.
fn tabs_through(browser: &mut Browser, name: &str) -> usize {
    let mut stops = BTreeSet::new();
    for _ in 0..200 {
        browser.press("Tab");
        let focused = browser.value(FOCUSED);
        let Some(stop) = focused["stop"].as_u64() else { break };
        if !stops.insert(stop) {
            break;
        }
        assert!(focused["ring"].as_f64().unwrap() >= 2.0, "{name}: {focused}");
    }
    let missed = browser.value(WANTED);
    assert_eq!(missed, json!([]), "{name}: the focus never comes to {missed:#}");
    stops.len()
}

#[test]
fn the_keyboard_reaches_everything_and_shows_where_it_is() {
    let Some(mut browser) = Browser::start() else { return };
    for (name, page) in reports().into_iter().chain(comparisons()) {
        for width in [1_280, 420] {
            browser.width(width);
            browser.open(&page);
            assert!(tabs_through(&mut browser, name) > 0, "{name}");
            let wide =
                browser.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(wide, 0, "{name}: at {width} pixels the page itself must be moved sideways");
        }
    }
    browser.is_silent();
}

fn focus(browser: &mut Browser, selector: &str) {
    let script = format!("document.querySelector({}).focus()", Value::from(selector));
    browser.value(&script);
}

fn nodes(browser: &mut Browser) -> Value {
    browser.value("[...document.querySelectorAll('.node .name')].map((one) => one.textContent).join(' ')")
}

/// Enter and Space do what a click does, and the focus does not get lost over it.
#[test]
fn buttons_work_by_enter_and_space() {
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&compare::page(&[], 240, crate::compare::NOTHING));
    focus(&mut browser, "#add");
    assert!(
        browser.value("document.querySelectorAll('.will-move').length").as_u64().unwrap() > 0,
        "the focus marks keys"
    );
    browser.press("Enter");
    assert_eq!(nodes(&mut browser), "A B C D");
    assert_ne!(browser.value("document.activeElement.tagName"), "BODY", "the focus stays near");
    focus(&mut browser, "[data-remove=B]");
    browser.press(" ");
    assert_eq!(nodes(&mut browser), "A C D");
    assert_eq!(browser.value("document.activeElement.dataset.remove"), "C", "the focus goes to the next");
    focus(&mut browser, "[data-weight=A]");
    browser.press("ArrowUp");
    assert_eq!(browser.value("document.activeElement.dataset.weight"), "A");
    assert_eq!(browser.value("document.activeElement.value"), "1.25");
    focus(&mut browser, "#key");
    browser.press("Enter");
    assert!(browser.value("document.body.textContent").as_str().unwrap().contains("so 43 belongs to"));
    focus(&mut browser, "#tokens");
    browser.press("ArrowDown");
    assert_eq!(browser.value("document.getElementById('tokens').value"), "4");
    focus(&mut browser, "#reset");
    browser.press("Enter");
    assert_eq!(nodes(&mut browser), "A B C");
    browser.is_silent();
}

/// What hovering over a chip tells, looking its key up tells too; what hovering over a row tells, typing its number does.
#[test]
fn what_hovering_tells_the_keyboard_tells_too() {
    let Some(mut browser) = Browser::start() else { return };
    browser.open(&compare::page(&[], 240, crate::compare::NOTHING));
    focus(&mut browser, "#key");
    browser.press("Enter");
    for side in ["mod-N", "ring", "rendezvous"] {
        let chip = format!(
            "[...document.querySelectorAll('[data-side={side}] .chip')].find((one) => one.textContent === '43').title"
        );
        let owner = browser.value(&chip).as_str().unwrap().replace("43: ", "");
        let told = browser.value(&format!("document.querySelector('[data-side={side}] .steps').textContent"));
        assert!(told.as_str().unwrap().ends_with(&format!("so 43 belongs to {owner}")), "{side}: {told}");
    }
    let (old, new) = drained();
    browser.open(&page::page(&old, &new));
    let told = "document.querySelector('output').textContent";
    let hover = "(() => { const one = document.querySelector('img.rows'), box = one.getBoundingClientRect();
        one.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + box.width * 7.5 / 256, clientY: box.top + 1 })); })()";
    browser.value(hover);
    let hovered = browser.value(told);
    browser.value("document.querySelector('output').textContent = ''; document.querySelector('.readout input').value = ''");
    focus(&mut browser, ".readout input");
    browser.press("7");
    assert_eq!(browser.value(told), hovered);
    assert!(hovered.as_str().unwrap().contains("web-"), "{hovered}");
    browser.press("ArrowUp");
    assert_eq!(browser.value("document.querySelector('.readout input').value"), "8");
    browser.is_silent();
}

#[test]
fn a_report_says_all_without_scripts_but_single_rows() {
    let Some(mut browser) = Browser::start() else { return };
    let seen = "({ text: document.querySelector('main').innerText, pictures: [...document.querySelectorAll('img')].every((one) => one.naturalWidth === 256),
        readout: [...document.querySelectorAll('.readout')].filter((one) => one.checkVisibility()).map((one) => one.innerText).join() })";
    for (name, page) in reports() {
        browser.send("Emulation.setScriptExecutionDisabled", &json!({"value": false}));
        browser.open(&page);
        let with = browser.value(seen);
        browser.send("Emulation.setScriptExecutionDisabled", &json!({"value": true}));
        browser.open(&page);
        let without = browser.value(seen);
        let readout = with["readout"].as_str().unwrap();
        assert!(!readout.is_empty() && without["readout"] == "", "{name}: {without}");
        let lines = |text: &Value| -> Vec<String> {
            let lines = text.as_str().unwrap().lines().map(str::trim);
            lines.filter(|line| !line.is_empty() && !readout.contains(line)).map(str::to_owned).collect()
        };
        assert_eq!(lines(&with["text"]), lines(&without["text"]), "{name}");
        assert_eq!((&with["pictures"], &without["pictures"]), (&true.into(), &true.into()), "{name}");
    }
}
