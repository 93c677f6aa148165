//! The settings of a RoPE method that `rope-cpu rope tune` searches.

use rope_cpu::{
    rope::{
        FREQ_BASE, FarKeys, Flags, Layers, Plan, SCALE, Table, dca, dprope, llama3, lm_infinite,
        ntk_mixed, rerope, self_extend, string, yarn,
    },
    settings::{Kind, Parameter},
};
use rope_cpu_lab::search::{Axis, Step};

/// A setting, and how to search it.
pub type Searched = (&'static Parameter, Axis);

/// Returns the numbers that can be searched of the method that `plan` was resolved for by `flags`: the
/// factor, the method's own parameters, a factor of the attention scale, and the base.
pub fn axes(plan: &Plan, flags: &Flags) -> Vec<Searched> {
    let visibility = plan.visibility;
    let group = match visibility.far {
        FarKeys::Divided(by) | FarKeys::Grouped(by) => by,
        FarKeys::AtDistance(_) | FarKeys::Capped(_) | FarKeys::Shifted(_) | FarKeys::Chunked(_) => {
            1
        }
    };
    let last = match visibility.far {
        FarKeys::Chunked(last) => last as f64,
        _ => 0.0,
    };
    let (near, first, group) = (visibility.near as f64, visibility.first as f64, group as f64);
    let times = |parameter: &'static Parameter, start: f64, ratio: f64, multiple| {
        (parameter, Axis { start, step: Step::Times(ratio), multiple })
    };
    let plus = |parameter: &'static Parameter, start: f64, step: f64, multiple| {
        (parameter, Axis { start, step: Step::Plus(step), multiple })
    };
    let quarter = (plan.n_rot as f64 / 4.0).max(2.0);
    let of_methods = [
        times(&yarn::BETA_FAST, 32.0, 2.0, 0),
        times(&yarn::BETA_SLOW, 1.0, 2.0, 0),
        plus(&yarn::EXT_FACTOR, 1.0, 0.5, 0),
        plus(&dprope::DIMS, divided(plan), quarter, 2),
        times(&ntk_mixed::EXPONENT, 0.75, 1.5, 0),
        times(&llama3::LOW_FREQ_FACTOR, 1.0, 2.0, 0),
        times(&llama3::HIGH_FREQ_FACTOR, 4.0, 2.0, 0),
        times(&rerope::WINDOW, near, 2.0, 1),
        times(&rerope::K, group, 2.0, 1),
        times(&self_extend::GROUP, group, 2.0, 1),
        times(&self_extend::WINDOW, near, 2.0, 16),
        times(&lm_infinite::LOCAL, near, 2.0, 1),
        times(&string::SHIFT, near, 1.5, 1),
        times(&string::WINDOW, 128.0, 2.0, 1),
        times(&lm_infinite::GLOBAL, first, 2.0, 1),
        times(&dca::CHUNK_SIZE, last, 1.5, 1),
        times(&dca::LOCAL_SIZE, last - near, 2.0, 1),
    ];
    let read = |(one, _): &Searched| flags.scaling().is_some_and(|scaling| scaling.reads(one));
    let given = |(parameter, axis): Searched| {
        let number = flags.values.number(parameter);
        let whole = flags.values.whole(parameter).map(|whole| whole as f64);
        (parameter, Axis { start: number.or(whole).unwrap_or(axis.start), ..axis })
    };
    let last = [times(&yarn::ATTN_FACTOR, 1.0, 1.1, 0), times(&FREQ_BASE, plan.base.value, 2.0, 0)];
    [times(&SCALE, plan.factor.value, 1.5, 0)]
        .into_iter()
        .chain(of_methods.into_iter().filter(read))
        .chain(last)
        .map(given)
        .collect()
}

/// Returns the number of dimensions with lower frequencies than the model's own.
fn divided(plan: &Plan) -> f64 {
    let table = Table::new(plan, Layers::Global, plan.effective_length(plan.context.value));
    let pairs = table.inv_freq.iter().zip(plan.trained_inv_freq());
    2.0 * pairs.filter(|(new, trained)| *new < trained).count() as f64
}

/// Returns the settings with these values of `axes`. Values to start from are left out.
pub fn settings(flags: &Flags, axes: &[Searched], values: &[f64]) -> Flags {
    axes.iter().zip(values).fold(flags.clone(), |flags, ((parameter, axis), value)| match parameter
        .kind
    {
        _ if *value == axis.start => flags,
        Kind::Whole(_) => flags.with(parameter, *value as usize),
        _ => flags.with(parameter, *value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_to_start_from_are_no_settings() {
        let flags = Flags::method("yarn");
        let axes = [
            (&yarn::BETA_FAST, Axis { start: 32.0, step: Step::Times(2.0), multiple: 0 }),
            (&rerope::WINDOW, Axis { start: 64.0, step: Step::Times(2.0), multiple: 1 }),
        ];
        assert_eq!(settings(&flags, &axes, &[32.0, 64.0]), flags);
        let moved = settings(&flags, &axes, &[45.3, 128.0]);
        assert_eq!(moved.values.number(&yarn::BETA_FAST), Some(45.3));
        assert_eq!(moved.values.whole(&rerope::WINDOW), Some(128));
    }
}
