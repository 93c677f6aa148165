//! Scales of LoRA adapters: of a request, and the server's defaults.

use rope_cpu::{
    batch::Scales,
    model::{Adapter, Model},
};
use serde_json::{Value, json};

use super::{
    app::App,
    error::ApiError,
    parameters::Shared,
    read::{Failure, whole},
};

crate::object! {
    /// The scale of an adapter in a request.
    pub struct Scale {
        /// The number of the adapter.
        id: Option<Value>,
        /// The scale, a finite number.
        scale: Option<f64>,
    }
}

/// Returns the scales that a model was opened with.
pub fn scales_of(model: &Model) -> Scales {
    model.adapters().iter().map(Adapter::scale).collect()
}

/// Returns the scales in a request's `lora`; the server's scales if the field is missing.
///
/// # Errors
/// As for [`of_list`].
pub fn of_request(shared: &Shared, app: &App) -> Result<Scales, ApiError> {
    match &shared.lora {
        Some(list) => of_list(&shared.place.of("lora"), list, app.model.adapters().len()),
        None => Ok(app.adapter_scales()),
    }
}

/// Returns the scales of `count` adapters from the list in field `place`. An adapter that is not
/// listed gets scale 0.
///
/// # Errors
/// If an adapter does not exist, is listed twice, or has a scale that is not a finite number.
pub fn of_list(place: &str, list: &[Scale], count: usize) -> Result<Scales, ApiError> {
    let mut given = vec![None; count];
    for (index, one) in list.iter().enumerate() {
        let Some(last) = count.checked_sub(1) else {
            return Err(ApiError::invalid(
                "\"lora\": the server has no adapters: start it with --lora, or leave the field out",
            ));
        };
        let (id, scale) = read(one, last).map_err(|e| e.within(&format!("{place}[{index}]")))?;
        if given[id].replace(scale).is_some() {
            return Err(ApiError::invalid(format_args!(
                "\"{place}[{index}].id\": adapter {id} is given twice: give each adapter at most once"
            )));
        }
    }
    Ok(given.into_iter().map(Option::unwrap_or_default).collect())
}

/// Returns the number of an adapter, up to `last`, and its scale.
fn read(given: &Scale, last: usize) -> Result<(usize, f32), Failure> {
    let id = given.id.as_ref().map(|id| whole(id, 0, i64::try_from(last).unwrap_or(i64::MAX)));
    let id = id.transpose().map_err(|failure| failure.within("id"))?;
    let id = id.and_then(|id| usize::try_from(id).ok()).ok_or_else(|| {
        Failure::missing("id", format_args!("a number of an adapter, from 0 to {last}"))
    })?;
    let scale = given.scale.ok_or_else(|| Failure::missing("scale", "a finite number"))?;
    match scale as f32 {
        finite if finite.is_finite() => Ok((id, finite)),
        _ => {
            let (least, most) = (f32::MIN, f32::MAX);
            let expected = format_args!("a number from {least:e} to {most:e}");
            Err(Failure::wrong("scale", expected, &scale.into()))
        }
    }
}

/// Returns scales in the form of a request's `lora`.
pub fn to_json(scales: &[f32]) -> Value {
    let scales = scales.iter().enumerate();
    scales.map(|(id, scale)| json!({ "id": id, "scale": scale })).collect()
}
