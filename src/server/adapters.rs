//! The scales of LoRA adapters: those of a request, and those of the server for requests that give none.

use std::sync::Arc;

use rope_cpu::model::{Adapter, Model};
use serde_json::{Value, json};

use super::{app::App, error::ApiError, fields::Fields};

/// The scale of each adapter.
pub type Scales = Arc<[f32]>;

/// Returns the scales that a model was opened with.
pub fn scales_of(model: &Model) -> Scales {
    model.adapters().iter().map(Adapter::scale).collect()
}

/// Returns the scales that a request gives in `lora`, or the server's if there is no such field.
///
/// # Errors
/// As for [`of_list`].
pub fn of_fields(fields: &Fields, app: &App) -> Result<Scales, ApiError> {
    match fields.list("lora")? {
        Some(list) => of_list(list, app.model.adapters().len()),
        None => Ok(app.adapter_scales()),
    }
}

/// Returns the scales of `count` adapters from a list of their identifiers with scales. An adapter that
/// is not listed has the scale 0.
///
/// # Errors
/// If there is no such adapter, one is given twice, or a scale is not a finite number.
pub fn of_list(list: &[Value], count: usize) -> Result<Scales, ApiError> {
    let mut given = vec![None; count];
    for item in list {
        let fields = Fields::from_value("lora", item)?;
        let Some(last) = count.checked_sub(1) else {
            return Err(ApiError::invalid(
                "\"lora\": the server has no adapters: start it with --lora, or leave the field out",
            ));
        };
        let id = fields.whole("id", 0, i64::try_from(last).unwrap_or(i64::MAX))?;
        let id = id.and_then(|id| usize::try_from(id).ok());
        let id = id.ok_or_else(|| {
            ApiError::field("id", format_args!("given for each adapter, from 0 to {last}"))
        })?;
        if given[id].replace(scale(&fields, id)?).is_some() {
            return Err(ApiError::invalid(format_args!(
                "\"id\": adapter {id} is given twice: give each adapter at most once"
            )));
        }
    }
    Ok(given.into_iter().map(Option::unwrap_or_default).collect())
}

fn scale(fields: &Fields, id: usize) -> Result<f32, ApiError> {
    let scale = fields.number("scale")?;
    let scale = scale.ok_or_else(|| {
        ApiError::field("scale", format_args!("given for adapter {id}: a finite number"))
    })?;
    Some(scale as f32).filter(|scale| scale.is_finite()).ok_or_else(|| {
        let (least, most) = (f32::MIN, f32::MAX);
        ApiError::field("scale", format_args!("from {least:e} to {most:e}, not {scale:e}"))
    })
}

/// Returns scales in the form of a request.
pub fn to_json(scales: &[f32]) -> Value {
    let scales = scales.iter().enumerate();
    scales.map(|(id, scale)| json!({ "id": id, "scale": scale })).collect()
}
