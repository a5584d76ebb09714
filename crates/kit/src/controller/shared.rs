// SPDX-License-Identifier: Apache-2.0
//! A controller over caches that others fill: it has no watch of its own, only a queue of the
//! objects somebody wants looked at. Everything else is as with a controller of its own.

use std::convert::Infallible;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use kube::runtime::controller;
use kube::runtime::reflector::{ObjectRef, Store};
use tokio_util::sync::CancellationToken;

use super::{Context, ControllerMetrics, Options, Reconciler, on_error, pass, to_the_end};
use crate::error::BoxError;
use crate::health::Health;

/// A controller that reads a shared cache.
pub struct SharedRunner<R: Reconciler> {
    name: &'static str,
    store: Store<R::Object>,
    triggers: SelectAll<BoxStream<'static, ObjectRef<R::Object>>>,
    reconciler: R,
    options: Options,
}

impl<R: Reconciler> SharedRunner<R> {
    /// A controller called `name` over `store`.
    pub fn new(name: &'static str, store: Store<R::Object>, reconciler: R) -> Self {
        Self {
            name,
            store,
            triggers: SelectAll::new(),
            reconciler,
            options: Options::default(),
        }
    }

    /// Sets how it is run.
    #[must_use]
    pub fn options(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// Adds a source of objects to look at.
    #[must_use]
    pub fn on(mut self, triggers: BoxStream<'static, ObjectRef<R::Object>>) -> Self {
        self.triggers.push(triggers);
        self
    }

    /// Runs until `stop`; passes that are under way are finished.
    pub async fn run(
        self,
        metrics: ControllerMetrics,
        health: Health,
        stop: CancellationToken,
    ) -> Result<(), BoxError> {
        let Self {
            name,
            store,
            triggers,
            reconciler,
            options,
        } = self;
        let config = controller::Config::default()
            .concurrency(options.workers)
            .debounce(options.debounce);
        // The end of the queue is what tells the runtime to finish.
        let queue = triggers
            .take_until(stop.clone().cancelled_owned())
            .map(Ok::<_, Infallible>);
        let context = Context::begin(name, reconciler, options, &store, &metrics, &health);
        let passes = kube::runtime::applier(
            |object, context| Box::pin(pass(object, context)),
            on_error,
            context,
            store.clone(),
            Box::pin(queue),
            config,
        );
        to_the_end(name, passes, &store, &metrics, &health, &stop).await
    }
}
