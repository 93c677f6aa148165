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
    match fields.objects("lora")? {
        Some(list) => of_list(&list, app.model.adapters().len()),
        None => Ok(app.adapter_scales()),
    }
}

/// Returns the scales of `count` adapters from a list of their identifiers with scales. An adapter that
/// is not listed has the scale 0.
///
/// # Errors
/// If there is no such adapter, one is given twice, or a scale is not a finite number.
pub fn of_list(list: &[Fields], count: usize) -> Result<Scales, ApiError> {
    let mut given = vec![None; count];
    for fields in list {
        let Some(last) = count.checked_sub(1) else {
            return Err(ApiError::invalid(
                "\"lora\": the server has no adapters: start it with --lora, or leave the field out",
            ));
        };
        let id = fields.whole("id", 0, i64::try_from(last).unwrap_or(i64::MAX))?;
        let id = id.and_then(|id| usize::try_from(id).ok());
        let id = id.ok_or_else(|| {
            fields.error("id", format_args!("a number of an adapter, from 0 to {last}"))
        })?;
        if given[id].replace(scale(fields)?).is_some() {
            return Err(ApiError::invalid(format_args!(
                "\"{}\": adapter {id} is given twice: give each adapter at most once",
                fields.place("id")
            )));
        }
    }
    Ok(given.into_iter().map(Option::unwrap_or_default).collect())
}

fn scale(fields: &Fields) -> Result<f32, ApiError> {
    let scale = fields.number("scale")?;
    let scale = scale.ok_or_else(|| fields.error("scale", "a finite number"))?;
    Some(scale as f32).filter(|scale| scale.is_finite()).ok_or_else(|| {
        let (least, most) = (f32::MIN, f32::MAX);
        fields.error("scale", format_args!("a number from {least:e} to {most:e}"))
    })
}

/// Returns scales in the form of a request.
pub fn to_json(scales: &[f32]) -> Value {
    let scales = scales.iter().enumerate();
    scales.map(|(id, scale)| json!({ "id": id, "scale": scale })).collect()
}
