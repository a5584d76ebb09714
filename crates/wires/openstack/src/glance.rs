// SPDX-License-Identifier: Apache-2.0
//! Glance: images, as the smoke test finds them and laboratories make them.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::call::{Call, Request, Service};
use crate::error::Result;
use crate::ids::ImageId;
use crate::pages::marked_by_id;
use crate::session::{Removal, Session};

static LIST: Call = Call::get(Service::Glance, "list images", "/images");
static SHOW: Call = Call::get(Service::Glance, "show an image", "/images/{image}");
static CREATE: Call = Call::post(Service::Glance, "create an image", "/images");
static UPLOAD: Call = Call::put(Service::Glance, "upload an image", "/images/{image}/file");
static DELETE: Call = Call::delete(Service::Glance, "delete an image", "/images/{image}");

/// Glance as one session sees it.
#[derive(Debug, Clone)]
pub struct Glance {
    session: Session,
}

impl Session {
    /// Glance.
    pub fn glance(&self) -> Glance {
        Glance {
            session: self.clone(),
        }
    }
}

/// An image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Image {
    /// Its id.
    pub id: ImageId,
    /// Its name.
    #[serde(default)]
    pub name: Option<String>,
    /// `queued`, `saving`, `active`, ...
    pub status: String,
    /// Its size in bytes, once it is known.
    #[serde(default)]
    pub size: Option<u64>,
    /// `raw`, `qcow2`, ...
    #[serde(default)]
    pub disk_format: Option<String>,
    /// `public`, `private`, ...
    #[serde(default)]
    pub visibility: Option<String>,
    /// Its tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Everything else that is said of it, such as properties its owner gave it.
    #[serde(flatten)]
    pub properties: BTreeMap<String, Value>,
}

/// An image to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewImage {
    /// Its name.
    pub name: String,
    /// `raw`, `qcow2`, ...
    pub disk_format: String,
    /// Whether everybody may use it.
    pub public: bool,
}

marked_by_id!(Image);

impl Glance {
    /// All images that the session may see.
    pub async fn images(&self) -> Result<Vec<Image>> {
        self.session.list(Request::new(&LIST, &[]), "images").await
    }

    /// The image with exactly this name that is ready; the newest, if there are several.
    pub async fn image_by_name(&self, name: &str) -> Result<Option<Image>> {
        let request = Request::new(&LIST, &[])
            .about(format!("image {name}"))
            .query("name", name)
            .query("sort", "created_at:desc");
        let images: Vec<Image> = self.session.list(request, "images").await?;
        let fits = |image: &Image| image.name.as_deref() == Some(name) && image.status == "active";
        Ok(images.into_iter().find(fits))
    }

    /// One image.
    pub async fn image(&self, id: &ImageId) -> Result<Image> {
        self.session.whole(Request::new(&SHOW, &[id.as_str()])).await
    }

    /// Makes an image without content.
    pub async fn create_image(&self, image: &NewImage) -> Result<Image> {
        let visibility = if image.public { "public" } else { "private" };
        let body = json!({
            "name": image.name, "disk_format": image.disk_format, "container_format": "bare",
            "visibility": visibility,
        });
        let request = Request::new(&CREATE, &[])
            .about(format!("image {}", image.name))
            .json(&body);
        self.session.whole(request).await
    }

    /// Gives an image its content.
    pub async fn upload_image(&self, id: &ImageId, content: Bytes) -> Result<()> {
        let request = Request::new(&UPLOAD, &[id.as_str()]).bytes(content, "application/octet-stream");
        self.session.done(request).await
    }

    /// Deletes an image.
    pub async fn delete_image(&self, id: &ImageId) -> Result<Removal> {
        self.session.remove(Request::new(&DELETE, &[id.as_str()])).await
    }
}
