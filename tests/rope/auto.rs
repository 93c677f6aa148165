//! What `--rope-scaling auto` chooses, and what it says of that.

use rope_cpu::{
    gguf::Value,
    rope::{Factors, Flags, Layers, Plan, Scaling, Table},
};

use crate::Case;

fn auto(case: Case) -> Plan {
    let flags = Flags { auto: true, ..Flags::default() };
    case.flags(flags).plan().unwrap()
}

fn case(context: usize) -> Case {
    Case { context: Some(context), ..Case::default() }
}

fn frequencies(plan: &Plan) -> Table {
    Table::new(plan, Layers::Global, plan.effective_length(plan.context.value))
}

#[test]
fn within_the_trained_length_nothing_is_scaled() {
    for context in [1, 8191, 8192] {
        let plan = auto(case(context));
        assert_eq!(frequencies(&plan), frequencies(&case(context).plan().unwrap()));
        let why = format!("{context} tokens are within the 8192 of training");
        let line = plan.to_string();
        assert!(
            line.starts_with(&format!("RoPE: no scaling (--rope-scaling auto: {why})")),
            "{line}"
        );
    }
}

#[test]
fn beyond_it_yarn_reaches_the_context() {
    let plan = auto(case(20480));
    let yarn = Flags { scaling: Some(Scaling::Yarn), scale: Some(2.5), ..Flags::default() };
    assert_eq!(frequencies(&plan), frequencies(&case(20480).flags(yarn).plan().unwrap()));
    assert_eq!(plan.warnings, [""; 0]);
    let line = plan.to_string();
    let why =
        "20480 tokens are 2.5 times the 8192 of training, where YaRN loses least without tuning";
    assert!(
        line.starts_with(&format!(
            "RoPE: yarn (--rope-scaling auto: {why}), factor 2.5 (context / original context)"
        )),
        "{line}"
    );
    // One more than was trained for is beyond.
    assert_eq!(auto(case(8193)).scaling.value, Scaling::Yarn);
}

#[test]
fn what_the_file_says_stands_where_it_reaches() {
    let file = |context| case(context).scaling("linear").float("scaling.factor", 4.0);
    let plan = auto(file(32768));
    assert_eq!((plan.scaling.value, plan.factor.value), (Scaling::Linear, 4.0));
    assert!(plan.to_string().contains("auto: the file's own settings reach 32768 tokens"));
    let plan = auto(file(40960));
    assert_eq!((plan.scaling.value, plan.factor.value), (Scaling::Yarn, 5.0));

    // A model that was extended from 4096: YaRN starts from there.
    let extended = case(16384)
        .scaling("yarn")
        .float("scaling.factor", 2.0)
        .key("scaling.original_context_length", Value::U32(4096));
    let plan = auto(extended);
    assert_eq!((plan.scaling.value, plan.factor.value), (Scaling::Yarn, 4.0));
}

#[test]
fn longrope_is_extended_from_what_it_reaches() {
    let set = |value| Some(vec![value; 32]);
    let factors = Factors { short: set(1.0), long: set(2.0), rope_freqs: None };
    let case = |context| {
        Case { factors: factors.clone(), ..case(context) }
            .scaling("longrope")
            .key("scaling.original_context_length", Value::U32(4096))
    };
    assert_eq!(auto(case(8192)).scaling.value, Scaling::LongRope);
    let plan = auto(case(16384));
    assert_eq!((plan.scaling.value, plan.factor.value), (Scaling::Yarn, 2.0));
    assert_eq!(plan.original_context.value, 8192);
}

#[test]
fn what_acts_on_attention_goes_on() {
    for context in [4096, 16384] {
        let flags =
            Flags { auto: true, log_n: Some(true), attention_sinks: Some(4), ..Flags::default() };
        let plan = case(context).flags(flags).plan().unwrap();
        assert!(plan.log_n.is_some() && plan.rolls(), "{plan}");
    }
}

#[test]
fn a_flag_that_chooses_too_is_refused() {
    let auto = Flags { auto: true, ..Flags::default() };
    for (flags, name) in [
        (Flags { scale: Some(2.0), ..auto.clone() }, "--rope-scale"),
        (Flags { freq_base: Some(1e6), ..auto.clone() }, "--rope-freq-base"),
        (Flags { yarn_beta_fast: Some(16.0), ..auto.clone() }, "--yarn-beta-fast"),
    ] {
        let error = case(16384).flags(flags).error();
        assert_eq!(
            error,
            format!(
                "{name} has no effect with --rope-scaling auto: name a method, or leave it out"
            )
        );
    }
}
