//! The interpreter of the crate whose parser is used, as a second opinion on random expressions.

use std::collections::HashMap;
use std::sync::Arc;

use cel::objects::{Key, Map};
use cel::{Context, Env, Value};
use proptest::prelude::*;

use super::*;

/// No double here is beyond 2^53, where that interpreter rounds, and none is divided by zero, where it goes on with
/// infinity.
const ARGUMENTS: &str = r#"{"n": 3, "m": -1, "zero": 0, "f": 2.5, "s": "ab", "e": "", "u": "é😀", "b": true, "z": null,
    "l": [1, 2, 3], "t": ["ab", "b", ""], "mix": [1, "ab", null, 2.5, [1], {"x": 1}], "o": {"x": 1, "y": {"x": "ab"}},
    "none": [], "bag": {}, "max": 9223372036854775807, "p": [{"x": 1}, {"x": "ab"}, {}]}"#;

const LEAVES: &[&str] = &[
    "args.n",
    "args.m",
    "args.zero",
    "args.f",
    "args.s",
    "args.e",
    "args.u",
    "args.b",
    "args.z",
    "args.l",
    "args.t",
    "args.mix",
    "args.o",
    "args.none",
    "args.bag",
    "args.max",
    "args.p",
    "args.missing",
    "args.o.x",
    "args.o.y.x",
    "args.l[0]",
    "args.l[5]",
    "args['s']",
    "args.mix[3]",
    "args",
    "principal",
    "tags",
    "0",
    "1",
    "-1",
    "2.5",
    "'ab'",
    "''",
    "'x'",
    "true",
    "false",
    "null",
    "[1, 2, 3]",
    "['ab', 'b']",
    "{'x': 1}",
    "[]",
    "9223372036854775807",
];

/// Writes an expression, each choice taken from the next byte.
struct Writer<'a> {
    choices: std::slice::Iter<'a, u8>,
    in_comprehension: bool,
}

impl Writer<'_> {
    fn choose(&mut self, below: usize) -> usize {
        usize::from(*self.choices.next().unwrap_or(&0)) % below
    }

    fn any(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.leaf();
        }
        match self.choose(14) {
            0..=3 => self.leaf(),
            4 => {
                let operator = ["+", "-", "*", "%"][self.choose(4)];
                format!("({} {operator} {})", self.any(depth - 1), self.any(depth - 1))
            }
            5 => format!("-({})", self.any(depth - 1)),
            6 => format!("{}[{}]", self.any(depth - 1), self.any(depth - 1)),
            7 => format!("({}).x", self.any(depth - 1)),
            8 => format!("size({})", self.any(depth - 1)),
            9 => format!("({} ? {} : {})", self.truth(depth - 1), self.any(depth - 1), self.any(depth - 1)),
            10 => format!("[{}, {}]", self.any(depth - 1), self.any(depth - 1)),
            11 => format!("{{'x': {}, 'k': {}}}", self.any(depth - 1), self.any(depth - 1)),
            12 if !self.in_comprehension => {
                let range = self.any(depth - 1);
                self.in_comprehension = true;
                let text = match self.choose(3) {
                    0 => format!("{range}.map(x, {})", self.any(depth - 1)),
                    1 => format!("{range}.map(x, {}, {})", self.truth(depth - 1), self.any(depth - 1)),
                    _ => format!("{range}.filter(x, {})", self.truth(depth - 1)),
                };
                self.in_comprehension = false;
                text
            }
            12 => self.leaf(),
            _ => self.truth(depth - 1),
        }
    }

    fn truth(&mut self, depth: usize) -> String {
        if depth == 0 {
            return ["args.b", "true", "false", "has(args.x)", "args.n == 3"][self.choose(5)].to_owned();
        }
        match self.choose(11) {
            0..=1 => {
                let operator = ["==", "!="][self.choose(2)];
                format!("({} {operator} {})", self.any(depth - 1), self.any(depth - 1))
            }
            2 => {
                let operator = ["<", "<=", ">", ">="][self.choose(4)];
                format!("({} {operator} {})", self.any(depth - 1), self.any(depth - 1))
            }
            3 => format!("({} in {})", self.any(depth - 1), self.any(depth - 1)),
            4 => format!("({} && {})", self.truth(depth - 1), self.truth(depth - 1)),
            5 => format!("({} || {})", self.truth(depth - 1), self.truth(depth - 1)),
            6 => format!("!({})", self.truth(depth - 1)),
            7 => {
                let test = ["contains", "startsWith", "endsWith"][self.choose(3)];
                format!("({}).{test}({})", self.any(depth - 1), self.any(depth - 1))
            }
            8 => format!("has(({}).x)", self.any(depth - 1)),
            9 if !self.in_comprehension => {
                let range = self.any(depth - 1);
                self.in_comprehension = true;
                let fold = ["exists", "all", "exists_one"][self.choose(3)];
                let text = format!("{range}.{fold}(x, {})", self.truth(depth - 1));
                self.in_comprehension = false;
                text
            }
            _ => format!("({} == {})", self.any(depth - 1), self.any(depth - 1)),
        }
    }

    fn leaf(&mut self) -> String {
        if self.in_comprehension && self.choose(2) == 0 {
            return ["x", "x.x", "x[0]"][self.choose(3)].to_owned();
        }
        LEAVES[self.choose(LEAVES.len())].to_owned()
    }
}

fn theirs(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match number.as_i64() {
            Some(int) => Value::Int(int),
            None => Value::Float(number.as_double().unwrap()),
        },
        Json::String(text) => Value::String(Arc::new(text.clone())),
        Json::Array(elements) => Value::List(Arc::new(elements.iter().map(theirs).collect())),
        Json::Object(members) => {
            let map = members.iter().map(|(name, value)| (Key::from(name.as_str()), theirs(value)));
            Value::Map(Map { map: Arc::new(map.collect::<HashMap<_, _>>()) })
        }
    }
}

/// Their answer; absent where it is no bool or an error.
fn their_answer(source: &str, arguments: &Json) -> Option<bool> {
    let env = Arc::new(Env::stdlib());
    let program = env.compile(source).unwrap();
    let mut context = Context::with_env(env);
    context.add_variable_from_value("args", theirs(arguments));
    context.add_variable_from_value("principal", "dana".to_owned());
    context.add_variable_from_value("tags", vec!["createHint".to_owned(), "destructiveHint".to_owned()]);
    match program.execute(&context) {
        Ok(Value::Bool(value)) => Some(value),
        Ok(_) | Err(_) => None,
    }
}

/// Compares the two on one expression; false where it was refused at load.
fn agree(source: &str) -> bool {
    let arguments = args(ARGUMENTS);
    let Ok(expression) = Expression::compile(source) else {
        return false;
    };
    let tags = ["createHint".to_owned(), "destructiveHint".to_owned()];
    let facts = Facts::new(FactsInput {
        args: &arguments,
        principal: "dana",
        agent: "",
        conversation: "",
        account: "",
        action: "",
        scope: "",
        tags: &tags,
        now: NOW,
    });
    let ours = expression.matches(&facts, &mut Meter::full());
    let theirs = their_answer(source, &arguments);
    // A list plus a map is a list to them, and to CEL an error.
    let theirs_is_lax = source.contains(" + ") && ours.is_err_and(|error| error.reason == Reason::WrongType);
    // Two kinds of value are unequal to them, and to us an error. Beside it another error may be the one that is told.
    let compares = ["==", "!=", " in "].iter().any(|operator| source.contains(operator));
    let may_tell_another = ["||", "&&", ".exists(", ".all("].iter().any(|logic| source.contains(logic));
    let ours_is_strict =
        compares && ours.is_err_and(|error| error.reason == Reason::WrongType || may_tell_another && theirs.is_some());
    assert!(ours.ok() == theirs || theirs_is_lax || ours_is_strict, "{source}: {ours:?}, and they say {theirs:?}");
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    #[test]
    fn both_interpreters_agree_on_random_expressions(choices in prop::collection::vec(any::<u8>(), 4..40)) {
        let mut writer = Writer { choices: choices.iter(), in_comprehension: false };
        agree(&writer.truth(4));
    }
}

#[test]
fn enough_random_expressions_pass_the_check_to_be_compared() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = prop::collection::vec(any::<u8>(), 4..40);
    let compared = (0..200).filter(|_| {
        let choices = strategy.new_tree(&mut runner).unwrap().current();
        agree(&Writer { choices: choices.iter(), in_comprehension: false }.truth(3))
    });
    let compared = compared.count();
    assert!(compared > 40, "{compared}");
}
