// The checks of CheckRecipe (checks.h), by subject. The order in which checks.cc calls them is the order of
// the messages. Each adds to the context's issues and skips fields that are marked as bad.
#pragma once

#include "recipe/check_context.h"

namespace trainctl::recipe {

// check_model.cc: the model, its initial weights, and what must fit it. A what-if accepts every valid model.
void CheckModel(CheckContext& context);
void CheckWhatIfModel(CheckContext& context);

// check_data.cc: the training sources, and the evaluation sets and their users.
void CheckSources(CheckContext& context);
void CheckEvaluation(CheckContext& context);

// check_cluster.cc: the device and its node, and the number of devices that a what-if may have.
void CheckDevice(CheckContext& context);
void CheckWhatIfDevice(CheckContext& context);
void CheckNumDevices(CheckContext& context);

// check_parallelism.cc: parallel degrees, the batch, and the pipeline.
void CheckLayout(CheckContext& context);

// check_training.cc: the length of the run, number formats, and the optimizer.
void CheckNumTokens(CheckContext& context);
void CheckNumerics(CheckContext& context);
void CheckOptimizer(CheckContext& context);
void CheckWhatIfOptimizer(CheckContext& context);

// check_launch.cc: the launch backend with its timeouts, and what the workers inherit.
void CheckBackend(CheckContext& context);
void CheckEnvironment(CheckContext& context);
void CheckInterface(CheckContext& context);

// check_metrics.cc: the steps that are traced or profiled, and the Prometheus export.
void CheckTracedSteps(CheckContext& context);
void CheckPrometheus(CheckContext& context);

}  // namespace trainctl::recipe
