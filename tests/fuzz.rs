//! What must hold for any input, held to it: the targets of `fuzz/targets.rs` over their corpus and over what chance makes of
//! it. Everyday runs try a few hundred of each; `COUNTERSIGN_FUZZ_SECONDS` says for how long otherwise, for all together. The
//! seed is printed, and `COUNTERSIGN_TEST_SEED` repeats it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable, clippy::indexing_slicing)]
#![allow(clippy::print_stdout)]

#[path = "random/mod.rs"]
mod random;
#[path = "../fuzz/targets.rs"]
mod targets;

use random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};
use targets::{TARGETS, Target};

/// Inputs that an everyday run makes for each target.
const ROUNDS: usize = 400;
/// No input becomes longer: what is long is slow, and shows nothing that a shorter one does not.
const LONGEST: usize = 8 * 1024;

/// What turns up in inputs of every kind, and where things go wrong.
const WORDS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"\\udc00",
    b"-0",
    b"1e400",
    b"1e-400",
    b"9007199254740993",
    b"0.1",
    b"null",
    b"true",
    b"{}",
    b"[[[[",
    b"\"a\":1",
    b"\xff",
    b"\xf0\x9f\x98\x80",
    b"\xe2\x80\xae",
    b"\xc2\xa0",
    b"\x00",
    b"\n",
    b"\r\n",
    b"\t",
    b" ",
    b"- ",
    b"  ",
    b"&a",
    b"*a",
    b"!!str ",
    b"|",
    b">",
    b"#",
    b"'",
    b"args.",
    b"has(",
    b")",
    b"&&",
    b"||",
    b"!",
    b"==",
    b"in ",
    b".all(x, ",
    b"matches('",
    b"size(",
    b"timestamp(",
    b"duration(",
    b"? ",
    b"cs1.",
    b".",
    b"version: countersign.policy/v1\n",
    b"password",
    b"connectors:\n",
    b"rules:\n",
    b"confirm: always\n",
    b"effect: deny",
    b"quorum: 2",
    b"constructor",
    b"__proto__",
    b"%",
    b"../",
];

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target.name);
    let mut files: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut inputs: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    inputs.extend(targets::made().into_iter().filter(|(name, _)| *name == target.name).map(|(_, input)| input));
    inputs
}

/// Another input, made of one and perhaps of a second.
fn mutated(random: &mut Random, inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut input = inputs[random.below(inputs.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(input.len() + 1);
        let end = at + random.below(input.len() - at + 1).min(64);
        match random.below(7) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = u8::try_from(random.below(256)).unwrap(),
            2 => drop(input.splice(at..at, WORDS[random.below(WORDS.len())].iter().copied())),
            3 => drop(input.drain(at..end)),
            4 => {
                let again = input[at..end].repeat(1 + random.below(4));
                drop(input.splice(at..at, again));
            }
            5 => {
                let other = &inputs[random.below(inputs.len())];
                input.truncate(at);
                input.extend(&other[random.below(other.len() + 1)..]);
            }
            _ => drop(input.splice(at..end, WORDS[random.below(WORDS.len())].iter().copied())),
        }
        input.truncate(LONGEST);
    }
    input
}

/// What of it does not hold for this input.
fn broken(target: &Target, input: &[u8]) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| (target.run)(input))).err()?;
    let said =
        panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    Some(said.unwrap_or_default())
}

fn hold(target: &Target, input: &[u8], seed: u64) {
    if let Some(said) = broken(target, input) {
        let shown = input.escape_ascii();
        panic!(
            "`{}` does not hold (COUNTERSIGN_TEST_SEED={seed}) for this, which belongs into its corpus:\n{shown}\n{said}",
            target.name
        );
    }
}

/// The targets over their corpus, and over as much as there is time for.
fn run(target: &Target) {
    let mut random = Random::seeded();
    let seed = random.seed();
    println!("COUNTERSIGN_TEST_SEED={seed}");
    let mut inputs = corpus(target);
    assert!(!inputs.is_empty(), "there is no corpus of {}", target.name);
    inputs.iter().for_each(|input| hold(target, input, seed));
    let seconds = std::env::var("COUNTERSIGN_FUZZ_SECONDS").ok().map(|text| text.parse::<u32>().expect("a number"));
    let until =
        seconds.map(|all| Instant::now() + Duration::from_secs(all.into()) / u32::try_from(TARGETS.len()).unwrap());
    let mut tried = 0;
    while until.map_or(tried < ROUNDS, |until| Instant::now() < until) {
        let input = mutated(&mut random, &inputs);
        hold(target, &input, seed);
        tried += 1;
        // What holds may lead on to what does not; some of it is kept.
        if random.below(16) == 0 && inputs.len() < 1_000 {
            inputs.push(input);
        }
    }
    println!("{}: {tried} inputs", target.name);
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                run(TARGETS.iter().find(|target| target.name == stringify!($name)).unwrap());
            }
        )*

        #[test]
        fn every_target_is_run() {
            assert_eq!(TARGETS.iter().map(|target| target.name).collect::<Vec<_>>(), [$(stringify!($name)),*]);
        }
    };
}

targets!(canonical, fingerprint, preview, policy, expression, consume_token, page_token, permit, jwks);

#[test]
fn a_target_that_does_not_hold_is_found() {
    let target = Target { name: "canonical", run: |input| assert!(!input.contains(&b'7'), "there is a seven") };
    let inputs = [b"{\"a\":1}".to_vec()];
    let mut random = Random::from(1);
    let found = (0..100_000).map(|_| mutated(&mut random, &inputs)).find_map(|input| broken(&target, &input));
    assert_eq!(found.as_deref(), Some("there is a seven"));
}
