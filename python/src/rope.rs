//! RoPE plans: the resolved settings, with the source of each value.

use numpy::{IntoPyArray, PyArray1};
use pyo3::{prelude::*, types::PyDict};
use rope_cpu::rope::{self, Flags, Layers, Table, yarn::Yarn};

use crate::errors::invalid;

/// The resolved RoPE settings of a model in a context.
#[pyclass(frozen, module = "rope_cpu.rope")]
pub struct Plan(pub rope::Plan);

/// Returns the name and the description of each RoPE setting.
#[pyfunction]
pub fn rope_settings() -> Vec<(&'static str, &'static str)> {
    rope::parameters().map(|parameter| (parameter.setting.0, parameter.summary)).collect()
}

/// A method's text, and further settings by name.
pub type Method = (Option<String>, Vec<(String, String)>);

/// Returns the settings of a method's text and of the given names and values.
pub fn flags(
    method: Option<&str>,
    settings: &[(String, String)],
    context_shift: bool,
) -> PyResult<Flags> {
    let flags = method.map_or(Ok(Flags::default()), str::parse).map_err(invalid)?;
    let flags = settings.iter().try_fold(flags, |flags, (name, text)| flags.parsed(name, text));
    Ok(Flags { context_shift, ..flags.map_err(invalid)? })
}

#[pymethods]
impl Plan {
    /// The method's name.
    #[getter]
    fn method(&self) -> &str {
        self.0.effective_scaling().name
    }

    /// How many times the method extends the context.
    #[getter]
    fn factor(&self) -> f64 {
        self.0.factor.value
    }

    /// The base of the frequencies.
    #[getter]
    fn base(&self) -> f64 {
        self.0.base.value
    }

    /// The context in tokens.
    #[getter]
    fn context(&self) -> usize {
        self.0.context.value
    }

    /// The context in tokens that the model was trained for.
    #[getter]
    fn trained_context(&self) -> usize {
        self.0.context_train.value
    }

    /// The scale of rotated queries and keys in a full context.
    #[getter]
    fn attention_scale(&self) -> f64 {
        self.table().scale
    }

    /// The frequency of each pair in a full context, in radians per position: float64, (pairs,).
    #[getter]
    fn frequencies<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.table().inv_freq.into_pyarray(py)
    }

    /// The frequencies that the model was trained with: float64, (pairs,).
    #[getter]
    fn trained_frequencies<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.0.trained_inv_freq().into_pyarray(py)
    }

    /// The source of each value: a keyword argument, a key of the file, a formula or `default`.
    #[getter]
    fn sources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let sources = PyDict::new(py);
        let plan = &self.0;
        let add = |name: &str, origin: &rope::Origin| {
            sources.set_item(name, origin.to_string().replace('`', ""))
        };
        add("method", &plan.scaling.origin)?;
        add("factor", &plan.factor.origin)?;
        add("base", &plan.base.origin)?;
        add("context", &plan.context.origin)?;
        add("trained_context", &plan.context_train.origin)?;
        add("original_context", &plan.original_context.origin)?;
        add("attention_scale", &plan.attention_scale.origin)?;
        if let Some(yarn) = plan.rule_as::<Yarn>() {
            add("yarn_ext_factor", &yarn.ext_factor.origin)?;
            add("yarn_beta_fast", &yarn.beta_fast.origin)?;
            add("yarn_beta_slow", &yarn.beta_slow.origin)?;
            add("yarn_ramp", &yarn.ramp.origin)?;
        }
        Ok(sources)
    }

    /// What may make the plan worse than another one.
    #[getter]
    fn warnings(&self) -> &[String] {
        &self.0.warnings
    }

    fn __str__(&self) -> String {
        self.0.to_string().replace('`', "")
    }

    fn __repr__(&self) -> String {
        format!("<Plan {}>", self.__str__())
    }
}

impl Plan {
    fn table(&self) -> Table {
        let length = self.0.effective_length(self.0.context.value);
        Table::new(&self.0, Layers::Global, length)
    }
}
