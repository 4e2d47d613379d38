// Recipes that are wrong, and what a person then reads: the whole text, as golden tables.
#pragma once

#include <string>
#include <vector>

namespace trainctl::recipe {

struct BadInputCase {
  const char* name;
  const char* text;  // after kMinimal unless it starts with "!"
  const char* error;
};

// kMinimal has 10 lines, so what is added starts at line 11.
inline const BadInputCase kBadInputs[] = {
    {"EmptyFile", "!", "r.toml is empty; a recipe must specify at least a model, data and train.steps"},
    {"OnlyAComment", "!# nothing\n",
     "r.toml is empty; a recipe must specify at least a model, data and train.steps"},
    {"NotToml", "!this is not toml\n",
     "r.toml:1:6: not valid TOML: while parsing key-value pair: expected '=', saw 'i'"},
    {"UnclosedString", "!a = \"x\n",
     "r.toml:1:7: not valid TOML: while parsing string: unescaped control characters other than TAB (U+0009) "
     "are explicitly prohibited"},
    {"KeyTwice", "[run]\nseed = 1\nseed = 2\n",
     "r.toml:13:8: not valid TOML: while parsing key-value pair: cannot redefine existing integer 'seed'"},
    {"NewerVersion", "!recipe_version = 2\n[future]\nx = 1\n",
     "r.toml:1:1: recipe_version 2 is newer than this program supports (1); use a newer trainctl"},
    {"VersionZero",
     "!recipe_version = 0\n[model]\npreset = 'toy-1m'\n[data]\nseq_len = 128\n[[data.train]]\nfiles = "
     "['a']\n[train]\nsteps = 1\nbatch_sequences = 1\n",
     "r.toml:1:1: recipe_version: 0 is out of range; expected a whole number equal to 1"},
    {"UnknownKey", "[optimizer]\nweight_decy = 0.1\n",
     "r.toml:12:1: unknown key optimizer.weight_decy; did you mean optimizer.weight_decay?"},
    {"UnknownTable", "[optimiser]\nlr = 0.1\n",
     "r.toml:11:2: unknown key optimiser; did you mean optimizer?"},
    {"KeyInTheWrongTable", "[run]\nlr = 0.1\n",
     "r.toml:12:1: unknown key run.lr; did you mean optimizer.lr?"},
    {"KeyNearNothing", "[checkpoint]\nfrobnicate = 1\n",
     "r.toml:12:1: unknown key checkpoint.frobnicate; [checkpoint] has every_steps every keep "
     "keep_every_steps keep_best at_end async when_busy"},
    {"KeyBelowNothing", "[a.b.c]\nd = 1\n",
     "r.toml:11:2: unknown key a; a recipe has recipe_version run model data train optimizer parallel "
     "cluster "
     "checkpoint launch metrics plan"},
    {"TableForAValue", "[run.seed]\nx = 1\n",
     "r.toml:11:6: run.seed: expected a whole number of at least 0, got a table"},
    {"ValueForATable", "checkpoint = 3\n",
     "r.toml:11:1: unknown key train.checkpoint; checkpoint is a table and cannot have a value; its keys are "
     "every_steps every "
     "keep keep_every_steps keep_best at_end async when_busy"},
    {"StringForANumber", "[optimizer]\nlr = 'fast'\n",
     "r.toml:12:1: optimizer.lr: expected a number from 0 to 1000, got \"fast\""},
    {"FractionForACount", "[checkpoint]\nkeep = 2.5\n",
     "r.toml:12:1: checkpoint.keep: expected a whole number from 1 to 1000000, got 2.5"},
    {"ExponentForACount", "[checkpoint]\nevery_steps = 1e3\n",
     "r.toml:12:1: checkpoint.every_steps: 1000.0 has a fractional part; write 1000"},
    {"LargeExponentForACount", "[run]\nseed = 1e18\n",
     "r.toml:12:1: run.seed: 1e18 has a fractional part; write 1000000000000000000"},
    {"ExponentOutOfRange", "[checkpoint]\nkeep = 1e9\n",
     "r.toml:12:1: checkpoint.keep: 1e9 is out of range; expected a whole number from 1 to 1000000"},
    {"DateForAString", "[run]\nname = 2024-01-01\n", "r.toml:12:1: run.name: expected a string, got a date"},
    {"NumberForABool", "[run]\ndeterministic = 1\n",
     "r.toml:12:1: run.deterministic: expected true or false, got 1"},
    {"NotANumber", "[optimizer]\nlr = nan\n",
     "r.toml:12:1: optimizer.lr: expected a number from 0 to 1000, got nan"},
    {"Infinity", "[optimizer]\nlr = inf\n",
     "r.toml:12:1: optimizer.lr: expected a number from 0 to 1000, got inf"},
    {"Negative", "[optimizer]\nlr = -1.0\n",
     "r.toml:12:1: optimizer.lr: -1.0 is out of range; expected a number from 0 to 1000"},
    {"AboveTheRange", "[parallel]\nzero_stage = 4\n",
     "r.toml:12:1: parallel.zero_stage: 4 is out of range; expected a whole number from 0 to 3, or \"auto\""},
    {"BetaOfOne", "[optimizer]\nbetas = [0.9, 1.0]\n",
     "r.toml:12:1: optimizer.betas: 1.0 is out of range; expected a list of 2 numbers of at least 0 and "
     "below 1"},
    {"ThreeBetas", "[optimizer]\nbetas = [0.9, 0.95, 0.99]\n",
     "r.toml:12:1: optimizer.betas: expected a list of 2 numbers of at least 0 and below 1, got a list of 3"},
    {"HugeInteger", "[run]\nseed = 99999999999999999999999999\n",
     "r.toml:12:34: not valid TOML: while parsing decimal integer: '99999999999999999999999999' is not "
     "representable in 64 bits"},
    {"BareBytes", "[cluster]\nmemory_limit = 80\n",
     "r.toml:12:1: cluster.memory_limit: expected a size with a unit, such as \"80GB\" or \"512MiB\", or "
     "\"auto\", got 80"},
    {"BytesWithoutUnit", "[cluster]\nmemory_limit = '80'\n",
     "r.toml:12:1: cluster.memory_limit: '80' is not a size with a unit, such as \"80GB\" or \"512MiB\""},
    {"BareDuration", "[launch]\ndetect_timeout = 3\n",
     "r.toml:12:1: launch.detect_timeout: expected a duration with a unit (ms, s, m or h) from 0.1 s to 3600 "
     "s, such as \"30m\", got 3"},
    {"DurationTooShort", "[launch]\ndetect_timeout = '1ms'\n",
     "r.toml:12:1: launch.detect_timeout: \"1ms\" is out of range; expected a duration with a unit (ms, s, m "
     "or h) from 0.1 s to 3600 s, such as \"30m\""},
    {"CountThatIsNotWhole", "[checkpoint]\nevery_steps = '1.0005K'\n",
     "r.toml:12:1: checkpoint.every_steps: '1.0005K' is not a whole number; expected a whole number from 1 "
     "to 1e12, such as 10_000 or \"10K\", or \"auto\""},
    {"AutoWhereItIsNotPossible", "[optimizer]\nlr = 'auto'\n",
     "r.toml:12:1: optimizer.lr: \"auto\" is not allowed here; expected a number from 0 to 1000"},
    {"NoSuchChoice", "[optimizer]\nlr_schedule = 'cosin'\n",
     "r.toml:12:1: optimizer.lr_schedule: expected \"cosine\", \"linear\", \"wsd\" or \"constant\", got "
     "\"cosin\""},
    {"EmptyString", "[run]\nname = ''\n", "r.toml:12:1: run.name: must not be empty"},
    {"ControlCharacter", "[run]\nname = \"a\\u0000b\"\n",
     "r.toml:12:1: run.name: \"a\\u0000b\" contains a control character"},
    {"TensorParallel", "[parallel]\ntp = 2\n",
     "r.toml:12:1: parallel.tp (2) does not divide the 1 worker (cluster.nodes 1 x cluster.devices_per_node "
     "1); the nearest is 1"},
    {"ContextParallel", "[parallel]\ncp = 2\n",
     "r.toml:12:1: parallel.cp = 2: this version does not train with context parallelism"},
    {"PipelineParallel", "[parallel]\npp = 4\n",
     "r.toml:12:1: parallel.pp (4) does not divide the 1 worker (cluster.nodes 1 x cluster.devices_per_node "
     "1); the nearest is 1"},
    {"PipelineOfTooManyStages", "[parallel]\npp = 8\n[cluster]\ndevices_per_node = 8\n",
     "r.toml:12:1: parallel.pp 8 x parallel.virtual_stages 1 are more stages than the 6 blocks of the model "
     "(4 layers, "
     "the embedding and the head); lower one of them"},
    {"StagesWithoutAPipeline", "[parallel]\nvirtual_stages = 2\n",
     "r.toml:12:1: parallel.virtual_stages: there is no pipeline, parallel.pp is 1; set parallel.pp, or "
     "take it out"},
    {"StagesOfAnotherModel", "[parallel]\npp = 2\nstage_layers = [1, 2]\n[cluster]\ndevices_per_node = 2\n",
     "r.toml:13:1: parallel.stage_layers has 3 layers in 2 stages, the model has 4, and parallel.pp 2 x "
     "parallel.virtual_stages 1 are 2 stages; as even as they come: [2, 2]"},
    {"OrderForAnotherShape",
     "[parallel]\npp = 2\nschedule = 'zbv'\nvirtual_stages = 1\n[cluster]\ndevices_per_node = 2\n",
     "r.toml:13:1: parallel.pp = 2 with 12 micro-batches at most: the zbv schedule has exactly 2 stages per "
     "rank, not 1"},
    {"PassesTwice",
     "[parallel]\npp = 2\npasses = ['0F0,0B0', '1F0,1B0,1B0']\n[cluster]\ndevices_per_node = 2\n",
     "r.toml:13:1: parallel.passes: passes:2:9: backward of stage 1, micro-batch 0 is there a second time"},
    {"PassesForgotten", "[parallel]\npp = 2\npasses = ['0F0,0B0', '1F0']\n[cluster]\ndevices_per_node = 2\n",
     "r.toml:13:1: parallel.passes: pipeline schedule passes: rank 0, action 1 (backward block 0 micro-batch "
     "0) "
     "waits for a gradient that rank 1 does not send (again)"},
    {"PassesThatWaitForEachOther",
     "[parallel]\npp = 2\npasses = ['0F0,0B0,0F1,0B1', '1F1,1B1,1F0,1B0']\n[cluster]\ndevices_per_node = 2\n",
     "r.toml:13:1: parallel.passes: they deadlock (class is the line, counted from 0; block is the stage): "
     "step 'passes': class 0, instruction 2 (receive block 1 micro-batch 1 from 1): waits forever with one "
     "message in flight per stream: it is in flight until its peer starts class 1: send block 1 micro-batch "
     "1 to 0 (stage 1 to 0); that needs class 1: backward block 1 micro-batch 1 (stage 1); that comes on its "
     "stream after class 1: forward block 1 micro-batch 1 (stage 1); that needs class 1: receive block 1 "
     "micro-batch 1 from 0 (stage 0 to 1); that is in flight until its peer starts class 0: send block 1 "
     "micro-batch 1 to 1 (stage 0 to 1); that needs class 0: forward block 0 micro-batch 1 (stage 0); that "
     "comes on its stream after class 0: backward block 0 micro-batch 0 (stage 0); that needs class 0: "
     "receive block 1 micro-batch 0 from 1 (stage 1 to 0); that comes on its stream after the first again"},
    {"PassesOfOtherRanks", "[parallel]\npasses = ['0F0,0B0', '1F0,1B0']\n[cluster]\ndevices_per_node = 2\n",
     "r.toml:12:1: parallel.passes: they have 2 lines, one per rank, but parallel.pp is 1; set parallel.pp = "
     "2"},
    {"PassesOfOneRank", "[parallel]\npasses = ['0F0,0B0']\n",
     "r.toml:12:1: parallel.passes: they have only one rank, which is not a pipeline; remove them"},
    {"PassesBesideAnOrder",
     "[parallel]\npp = 2\nschedule = 'gpipe'\npasses = ['0F0,0B0', '1F0,1B0']\n[cluster]\ndevices_per_node = "
     "2\n",
     "r.toml:14:1: parallel.passes and parallel.schedule (r.toml:13:1) exclude each other; set only one of "
     "them"},
    {"PassesBesideTheirStages",
     "[parallel]\npp = 2\nvirtual_stages = 1\npasses = ['0F0,0B0', '1F0,1B0']\n[cluster]\n"
     "devices_per_node = 2\n",
     "r.toml:14:1: parallel.passes: they determine the number of stages per rank; remove "
     "parallel.virtual_stages"},
    {"PassesOfOtherMicroBatches",
     "[parallel]\npp = 2\npasses = ['0F0,0F1,0F2,0F3,0F4,0B0,0B1,0B2,0B3,0B4', "
     "'1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4']\n[cluster]\ndevices_per_node = 2\n",
     "r.toml:13:1: parallel.passes: they have 5 micro-batches for each of 1 data-parallel worker(s), but "
     "train.batch_sequences is 12; set train.batch_sequences = 10"},
    {"NoScheduleFile", "[parallel]\npp = 2\nschedule_file = 'my.csv'\n[cluster]\ndevices_per_node = 2\n",
     "r.toml:13:1: parallel.schedule_file: cannot open /cwd/my.csv: not there"},
    {"ExpertParallel", "[parallel]\nep = 8\n",
     "r.toml:12:1: parallel.ep = 8: this version does not train with expert parallelism"},
    {"Fp8",
     "!recipe_version = 1\n[model]\npreset = 'toy-1m'\n[data]\nseq_len = 128\n[[data.train]]\nfiles = "
     "['a']\n[train]\nsteps = 1\nbatch_sequences = 1\nprecision = 'fp8'\n",
     "r.toml:11:1: train.precision = \"fp8\": this version trains in fp32 and bf16"},
    {"GradientsInBf16",
     "!recipe_version = 1\n[model]\npreset = 'toy-1m'\n[data]\nseq_len = 128\n[[data.train]]\nfiles = "
     "['a']\n[train]\nsteps = 1\nbatch_sequences = 1\ngradient_dtype = 'bf16'\n",
     "r.toml:11:1: train.gradient_dtype = \"bf16\": this version accumulates and reduces gradients in fp32"},
    {"AttentionWhoseBitsDiffer",
     "!recipe_version = 1\n[run]\nattention = 'cudnn'\ndeterministic = true\n[model]\npreset = "
     "'toy-1m'\n[data]\nseq_len = "
     "128\n[[data.train]]\nfiles = ['a']\n[train]\nsteps = 1\nbatch_sequences = 1\n",
     "r.toml:3:1: run.attention = \"cudnn\": its gradients differ in the last bits from run to run, but "
     "run.deterministic is true; set run.attention = \"flash\""},
    {"MastersInBf16AloneWithFp32",
     "!recipe_version = 1\n[model]\npreset = 'toy-1m'\n[data]\nseq_len = 128\n[[data.train]]\nfiles = "
     "['a']\n[train]\nsteps = 1\nbatch_sequences = 1\nmaster_dtype = 'bf16'\nprecision = 'fp32'\n",
     "r.toml:11:1: train.master_dtype = \"bf16\" keeps the weights only in bf16, but train.precision is "
     "\"fp32\"; set train.precision = \"bf16\""},
    {"SlurmJobsNumberOfNodes",
     "[launch]\nbackend = 'slurm'\n[launch.slurm]\nsubmit_options = ['--nodes=4']\n",
     "r.toml:14:1: launch.slurm.submit_options: '--nodes=4' is set by trainctl itself: nodes from "
     "cluster.nodes, the warning from launch.slurm.save_before, variables from launch.env; remove it"},
    {"SlurmSaveAtOnce", "[launch]\nbackend = 'slurm'\n[launch.slurm]\nsave_before = '0.5s'\n",
     "r.toml:14:1: launch.slurm.save_before: \"0.5s\" is out of range; expected a duration with a unit (ms, "
     "s, m "
     "or h) from 1 s to 65535 s, such as \"30m\""},
    {"SlurmOptionsOfAnotherBackend", "[launch.slurm]\nstep_options = ['--exact']\n",
     "r.toml:12:1: launch.slurm.step_options is used only with launch.backend = \"slurm\", but "
     "launch.backend is \"local\"; set launch.backend = \"slurm\", or remove the table (--set "
     "launch.slurm=default)"},
    {"KubernetesWithoutImage", "[launch]\nbackend = 'kubernetes'\n[launch.kubernetes]\nname = 'llm'\n",
     "r.toml:12:1: launch.backend = \"kubernetes\" requires launch.kubernetes.image, "
     "launch.kubernetes.claim: "
     "the job's name, the container image and the PersistentVolumeClaim"},
    {"KubernetesOptionsOfAnotherBackend", "[launch.kubernetes]\nname = 'llm'\nimage = 'i'\nclaim = 'disk'\n",
     "3 errors in r.toml:\n  r.toml:12:1: launch.kubernetes.name is used only with launch.backend = "
     "\"kubernetes\", but launch.backend is \"local\"; set launch.backend = \"kubernetes\", or remove the "
     "table (--set launch.kubernetes=default)\n  r.toml:13:1: launch.kubernetes.image is used only with "
     "launch.backend = \"kubernetes\", but launch.backend is \"local\"; set launch.backend = \"kubernetes\", "
     "or remove the table (--set launch.kubernetes=default)\n  r.toml:14:1: launch.kubernetes.claim is used "
     "only with launch.backend = \"kubernetes\", but launch.backend is \"local\"; set launch.backend = "
     "\"kubernetes\", or remove the table (--set launch.kubernetes=default)"},
    {"KubernetesName",
     "[launch]\nbackend = 'kubernetes'\n[launch.kubernetes]\nname = 'My_Job'\nimage = 'i'\nclaim = 'c'\n",
     "r.toml:14:1: launch.kubernetes.name: 'My_Job' is not a valid job name: use lowercase letters, digits "
     "and '-', starting with a letter and not ending with '-'"},
    {"KubernetesMount",
     "[launch]\nbackend = 'kubernetes'\n[launch.kubernetes]\nname = 'j'\nimage = 'i'\nclaim = 'c'\nmount = "
     "'shared'\n",
     "r.toml:17:1: launch.kubernetes.mount: 'shared' is not a valid mount point: use an absolute path such "
     "as \"/shared\""},
    {"SshWithoutHosts", "[launch]\nbackend = 'ssh'\n",
     "r.toml:12:1: launch.backend = \"ssh\" requires a list of machines; set launch.ssh.hosts = [\"node0\", "
     "\"node1\"] or launch.ssh.hosts_file"},
    {"HostsWithoutSsh", "[launch.ssh]\nhosts = ['n0']\n",
     "r.toml:12:1: launch.ssh.hosts is used only with launch.backend = \"ssh\", but launch.backend is "
     "\"local\"; set launch.backend = \"ssh\", or remove the table (--set launch.ssh=default)"},
    {"HostsTwice", "[launch]\nbackend = 'ssh'\n[launch.ssh]\nhosts = ['n0']\nhosts_file = 'hosts'\n",
     "r.toml:15:1: launch.ssh.hosts_file and launch.ssh.hosts (r.toml:14:1) exclude each other; set only one "
     "of them"},
    {"FewerHostsThanNodes",
     "[cluster]\nnodes = 3\n[launch]\nbackend = 'ssh'\n[launch.ssh]\nhosts = ['n0', 'n1']\n",
     "r.toml:16:1: launch.ssh.hosts has 2 machines, but cluster.nodes = 3; list 1 more, or set cluster.nodes "
     "= 2"},
    {"AHostTwice", "[launch]\nbackend = 'ssh'\n[launch.ssh]\nhosts = ['n0', 'me@N0']\n",
     "r.toml:14:1: launch.ssh.hosts: me@N0 is listed twice (as n0); set the number of workers per machine "
     "with cluster.devices_per_node"},
    {"AHostThatIsAnOption", "[launch]\nbackend = 'ssh'\n[launch.ssh]\nhosts = ['-oProxyCommand=reboot']\n",
     "r.toml:14:1: launch.ssh.hosts: '-oProxyCommand=reboot' is not a valid machine name: ssh would treat it "
     "as an option"},
    {"AHostWithAPort", "[launch]\nbackend = 'ssh'\n[launch.ssh]\nhosts = ['n0:2222']\n",
     "r.toml:14:1: launch.ssh.hosts: 'n0:2222' is not a valid machine name: set a port with "
     "launch.ssh.options = [\"-p\", \"2222\"] and the number of workers with cluster.devices_per_node"},
    {"AHostsFileThatIsNotThere", "[launch]\nbackend = 'ssh'\n[launch.ssh]\nhosts_file = 'cluster/hosts'\n",
     "r.toml:14:1: launch.ssh.hosts_file: cannot open /cwd/cluster/hosts: not there"},
    {"AnOptionThatIsAHost",
     "[launch]\nbackend = 'ssh'\n[launch.ssh]\nhosts = ['n0']\noptions = ['-v', 'n1']\n",
     "r.toml:15:1: launch.ssh.options: 'n1' would be treated as the machine's name; an option starts with "
     "'-' and is followed by its value, for example [\"-p\", \"2222\"]"},
    {"ACoordinatorGivenUpTooEarly",
     "[launch]\nbackend = 'ssh'\ncoordinator_timeout = '5s'\n[launch.ssh]\nhosts = ['n0']\n",
     "r.toml:13:1: launch.coordinator_timeout (5s) must be at least twice launch.detect_timeout (10s), or "
     "a machine would stop workers that the launcher still considers running; set launch.coordinator_timeout "
     "= \"20s\", or launch.detect_timeout = \"2500ms\""},
    {"AHangNamedTooEarly", "[launch]\nbackend = 'ssh'\nhang_timeout = '9s'\n[launch.ssh]\nhosts = ['n0']\n",
     "r.toml:13:1: launch.hang_timeout (9s) must be at least launch.detect_timeout (10s), or workers on a "
     "machine that goes silent for a moment would be considered hung; set launch.hang_timeout = \"10s\", or "
     "launch.detect_timeout = \"9s\""},
    {"ASaveThatIsCutShort",
     "[launch]\nbackend = 'slurm'\nstop_timeout = '2m'\n[launch.slurm]\nsave_before = '1m'\n",
     "r.toml:15:1: launch.slurm.save_before (1m) must be at least launch.stop_timeout (2m), or Slurm "
     "might kill the job before a save finishes; set launch.slurm.save_before = \"2m\", or "
     "launch.stop_timeout = \"1m\""},
    {"AMachineGivenUpBeforeItIsSilent",
     "[launch]\nbackend = 'ssh'\ndetect_timeout = '3m'\ncoordinator_timeout = '6m'\n[launch.ssh]\nhosts = "
     "['n0']\n",
     "r.toml:13:1: launch.detect_timeout (3m) must be at most 2m, after which a launch gives up on an "
     "unreachable machine; otherwise the launch ends before it can name that machine; set "
     "launch.detect_timeout = \"2m\""},
    {"ACollectiveGivenUpTooEarly",
     "[launch]\nbackend = 'ssh'\ncollective_timeout = '1s'\n[launch.ssh]\nhosts = ['n0']\n",
     "r.toml:13:1: launch.collective_timeout (1s) must be longer than launch.detect_timeout (10s), or "
     "workers that wait for a lost worker would fail before the loss is detected; set "
     "launch.collective_timeout = \"11s\", or launch.detect_timeout = \"500ms\""},
    {"InterfaceThatIsNone", "[launch]\ninterface = 'eth0 eth1'\n",
     "r.toml:12:1: launch.interface: \"eth0 eth1\" is not a network interface, an address or a range such as "
     "\"10.0.0.0/8\""},
    {"PassedEnvThatIsNoName", "[launch]\npass_env = ['A=1']\n",
     "r.toml:12:1: launch.pass_env: \"A=1\" is not a valid variable name"},
    {"PassedEnvThatTheLauncherSets", "[launch]\npass_env = ['RANK']\n",
     "r.toml:12:1: launch.pass_env: \"RANK\" is a variable that trainctl sets itself"},
    {"PassedEnvThatIsSet", "[launch]\npass_env = ['A']\n[launch.env]\nA = '1'\n",
     "r.toml:12:1: launch.pass_env: \"A\" is also set in launch.env.A; remove one of them"},
    {"AProgramWithoutAName", "[launch]\non_event = ['']\n",
     "r.toml:12:1: launch.on_event: must not be empty"},
    {"MetricsAtAPortAlone", "[metrics]\nprometheus = '9400'\n",
     "r.toml:12:1: metrics.prometheus: '9400' is no address with a port: there is no ':'; set HOST:PORT, "
     "such as \"127.0.0.1:9400\", or the path of a *.prom file"},
    {"MetricsAtAUrl", "[metrics]\nprometheus = 'http://localhost:9400/metrics'\n",
     "r.toml:12:1: metrics.prometheus: \"http://localhost:9400/metrics\" is a URL; set HOST:PORT, such as "
     "\"127.0.0.1:9400\", or the path of a *.prom file"},
    {"MetricsInAnyFile", "[metrics]\nprometheus = '/tmp/metrics.txt'\n",
     "r.toml:12:1: metrics.prometheus: '/tmp/metrics.txt' is no address with a port: there is no ':'; set "
     "HOST:PORT, such as \"127.0.0.1:9400\", or the path of a *.prom file"},
    {"ProfilesTwice", "[metrics]\nprofile_steps = [10, 10]\n",
     "r.toml:12:1: metrics.profile_steps: step 10 is listed twice"},
    {"TracesBeyondTheRun", "[metrics]\ntrace_steps = [10, 999_999_999]\n",
     "r.toml:12:1: metrics.trace_steps: step 999999999 is beyond train.steps (100)"},
    {"TwoNodes", "[cluster]\nnodes = 2\n",
     "r.toml:12:1: cluster.nodes = 2, but launch.backend = \"local\" starts workers only on this machine; "
     "set cluster.nodes = 1, or set launch.backend to \"ssh\" (and list the machines in launch.ssh.hosts), "
     "\"slurm\" or \"kubernetes\""},
    {"StepsAndTokens",
     "!recipe_version = 1\n[model]\npreset = 'toy-1m'\n[data]\nseq_len = 128\n[[data.train]]\nfiles = "
     "['a']\n[train]\nsteps = 1\ntokens = '1M'\nbatch_sequences = 1\n",
     "r.toml:10:1: train.tokens and train.steps (r.toml:9:1) exclude each other; set only one of them"},
    {"StepsAndEpochs",
     "!recipe_version = 1\n[model]\npreset = 'toy-1m'\n[data]\nseq_len = 128\n[[data.train]]\nfiles = "
     "['a']\n[train]\nsteps = 1\nepochs = 3\nbatch_sequences = 1\n",
     "r.toml:10:1: train.epochs and train.steps (r.toml:9:1) exclude each other; set only one of them"},
    {"NoEpochs",
     "!recipe_version = 1\n[model]\npreset = 'toy-1m'\n[data]\nseq_len = 128\n[[data.train]]\nfiles = "
     "['a']\n[train]\nepochs = 0\nbatch_sequences = 1\n",
     "r.toml:9:1: train.epochs: 0 is out of range; expected a number above 0 and at most 1000000"},
    {"PresetAndFamily",
     "!recipe_version = 1\n[model]\npreset = 'toy-1m'\nfamily = 'llama'\n[data]\nseq_len = "
     "128\n[[data.train]]\nfiles = ['a']\n[train]\nsteps = 1\nbatch_sequences = 1\n",
     "r.toml:4:1: model.family and model.preset (r.toml:3:1) exclude each other; set only one of them"},
    {"NothingButAModel", "![model]\npreset = 'toy-1m'\n",
     "2 errors in r.toml:\n  r.toml: no training data; add at least one [[data.train]] entry with `files`\n  "
     "r.toml: the run has no length; set train.steps, train.tokens or train.epochs"},
    {"NoModel", "![data]\nseq_len = 128\n[[data.train]]\nfiles = ['a']\n[train]\nsteps = 1\n",
     "r.toml: the model is missing; set model.preset (toy-1m, toy-5m, llama-25m, llama-120m, llama-1b, "
     "llama3.2-1b, llama3.2-3b, llama2-7b, llama3.1-8b, llama2-13b, llama2-70b, llama3.1-70b, "
     "llama3.1-405b), model.from (a Hugging Face folder) or model.family"},
    {"UnknownPreset",
     "![model]\npreset = 'llama9'\n[data]\nseq_len = 128\n[[data.train]]\nfiles = ['a']\n[train]\nsteps = "
     "1\n",
     "r.toml:2:1: model.preset = 'llama9' is not known; the nearest are llama-1b, llama-25m, llama2-7b; the "
     "presets are toy-1m, toy-5m, llama-25m, llama-120m, llama-1b, llama3.2-1b, llama3.2-3b, llama2-7b, "
     "llama3.1-8b, llama2-13b, llama2-70b, llama3.1-70b, llama3.1-405b; only for planning: internlm-7b, "
     "moonlight-16b, internlm-20b, gpt-oss-20b, qwen3-30b-a3b, mixtral-8x7b, gpt-oss-120b, mixtral-8x22b, "
     "gpt3-175b, qwen3-235b-a22b, deepseek-v3, kimi-k2; model.from = FOLDER takes the config.json of "
     "another"},
    {"FamilyWithoutSizes",
     "![model]\nfamily = 'llama'\nhidden = 64\n[data]\nseq_len = 128\n[[data.train]]\nfiles = "
     "['a']\n[train]\nsteps = 1\n",
     "4 errors in r.toml:\n  r.toml:2:1: model.layers is missing; with model.family, all sizes are "
     "required\n  r.toml:2:1: model.heads is missing; with model.family, all sizes are required\n  "
     "r.toml:2:1: model.ffn is missing; with model.family, all sizes are required\n  r.toml:2:1: model.vocab "
     "is missing; with model.family, all sizes are required"},
    {"HeadsThatDoNotDivide",
     "![model]\npreset = 'toy-1m'\nheads = 5\n[data]\nseq_len = 128\n[[data.train]]\nfiles = "
     "['a']\n[train]\nsteps = 1\n",
     "r.toml:3:1: model.hidden (128) is not a multiple of model.heads (5); change one of them or set "
     "model.head_dim"},
    {"KvHeadsThatDoNotDivide",
     "![model]\npreset = 'toy-1m'\nkv_heads = 3\n[data]\nseq_len = 128\n[[data.train]]\nfiles = "
     "['a']\n[train]\nsteps = 1\n",
     "r.toml:3:1: model.heads = 4 is not a multiple of model.kv_heads = 3: every key-value head serves the "
     "same number of query heads"},
    {"VocabularyBelowBytes",
     "![model]\npreset = 'toy-1m'\nvocab = 255\n[data]\nseq_len = 128\n[[data.train]]\nfiles = "
     "['a']\n[train]\nsteps = 1\n",
     "r.toml:3:1: model.vocab (255) is less than the 256 tokens that data.tokenizer = \"byte\" needs; set "
     "data.tokenizer, or model.vocab = 256 or more"},
    {"SequenceAboveMaxPosition",
     "![model]\npreset = 'toy-1m'\n[data]\nseq_len = 4096\n[[data.train]]\nfiles = ['a']\n[train]\nsteps = "
     "1\n",
     "r.toml:4:1: data.seq_len (4096) is above model.max_position (2048); lower data.seq_len, or set "
     "model.max_position = 4096"},
    {"MissingHuggingFaceFolder",
     "![model]\nfrom = 'hf'\n[data]\nseq_len = 128\n[[data.train]]\nfiles = ['a']\n[train]\nsteps = 1\n",
     "r.toml:2:1: model.from: cannot open /cwd/hf/config.json: not there"},
    {"TrainIsNoList", "![model]\npreset = 'toy-1m'\n[data]\ntrain = 'a.txt'\n[train]\nsteps = 1\n",
     "r.toml:4:1: data.train: expected a list of tables ([[data.train]])"},
    {"SourceWithoutFiles", "[[data.train]]\nname = 'x'\n", "r.toml:11:1: data.train[1].files is missing"},
    {"NoFileMatches", "[[data.train]]\nfiles = ['missing/*.bin']\n",
     "r.toml:12:1: data.train[1].files: no file matches /cwd/missing/*.bin"},
    {"FileTwice", "[[data.train]]\nfiles = ['b*.bin', 'b1.bin']\n",
     "r.toml:12:1: data.train[1].files: /cwd/b1.bin is matched twice, by /cwd/b*.bin and by /cwd/b1.bin"},
    {"EmptyFileList", "[[data.train]]\nfiles = []\n", "r.toml:12:1: data.train[1].files: must not be empty"},
    {"SomeWeights", "[[data.train]]\nfiles = ['b']\nweight = 0.5\n",
     "r.toml:7:1: data.train[0] has no weight, but another source does; set a weight for every source or for "
     "none"},
    {"SameName", "[[data.train]]\nname = 'train-0'\nfiles = ['b']\n",
     "r.toml:12:1: data.train[1].name: \"train-0\" is also the name of data.train[0]"},
    {"EvalWithoutData", "[[data.eval]]\nname = 'x'\n",
     "r.toml:11:1: data.eval[0].files or holdout is missing"},
    {"EvalFilesAndHoldout", "[[data.eval]]\nfiles = ['x']\nholdout = 0.1\n",
     "r.toml:13:1: data.eval[0].holdout and data.eval[0].files (r.toml:12:1) exclude each other; set only "
     "one of them"},
    {"TwoHoldouts", "[[data.eval]]\nholdout = 0.1\n[[data.eval]]\nholdout = 0.2\n",
     "r.toml:14:1: data.eval[1].holdout: only one evaluation set can use holdout"},
    {"EvalEveryWithoutEval",
     "!recipe_version = 1\n[model]\npreset = 'toy-1m'\n[data]\nseq_len = 128\n[[data.train]]\nfiles = "
     "['a']\n[train]\nsteps = 1\nbatch_sequences = 1\neval_every = 5\n",
     "r.toml:11:1: train.eval_every = 5, but there is no [[data.eval]] to evaluate on"},
    {"BatchTokensBetweenSequences",
     "![model]\npreset = 'toy-1m'\n[data]\nseq_len = 128\n[[data.train]]\nfiles = ['a']\n[train]\nsteps = "
     "1\nbatch_tokens = 1000\n",
     "r.toml:9:1: train.batch_tokens (1000) is not a multiple of data.seq_len (128); the nearest are 896 and "
     "1024"},
    {"BatchTokensBelowOneSequence",
     "![model]\npreset = 'toy-1m'\n[data]\nseq_len = 128\n[[data.train]]\nfiles = ['a']\n[train]\nsteps = "
     "1\nbatch_tokens = 100\n",
     "r.toml:9:1: train.batch_tokens (100) is not a multiple of data.seq_len (128); the nearest is 128"},
    {"BatchThatDoesNotDivide", "[cluster]\ndevices_per_node = 5\n",
     "r.toml:10:1: train.batch_sequences (12) is not a multiple of the 5 workers (cluster.nodes 1 x "
     "cluster.devices_per_node 5); the nearest are 10 and 15"},
    {"BatchBelowTheWorkers", "[cluster]\ndevices_per_node = 16\n[parallel]\npp = 2\ntp = 1\n",
     "r.toml:10:1: train.batch_sequences (12) is not a multiple of the 8 workers of each stage "
     "(cluster.nodes 1 "
     "x cluster.devices_per_node 16 / parallel.pp 2); the nearest are 8 and 16"},
    {"BatchThatTakesACut", "[cluster]\ndevices_per_node = 8\n",
     "r.toml:10:1: train.batch_sequences (12) is not a multiple of the 8 workers (cluster.nodes 1 x "
     "cluster.devices_per_node 8); the nearest are 8 and 16; or cut the model: parallel.pp = 2"},
    {"TooManyTokensToCount",
     "!recipe_version = 1\n[model]\npreset = 'toy-1m'\n[data]\nseq_len = 2048\n[[data.train]]\nfiles = "
     "['a']\n[train]\nsteps = 1000000000000\nbatch_sequences = 1_000_000_000\n",
     "r.toml:9:1: the run would have 2.048e+24 tokens (train.steps x train.batch_sequences x data.seq_len); "
     "the limit is 4e18"},
    {"DegreesThatDoNotMultiplyUp",
     "[cluster]\ndevices_per_node = 4\n[parallel]\ndp_replicate = 2\ndp_shard = 3\n",
     "r.toml:14:1: parallel: dp_replicate 2 x dp_shard 3 is not the 4 workers "
     "(cluster.nodes 1 x cluster.devices_per_node 4); set parallel.dp_shard = 2"},
    {"DegreeThatDoesNotDivide", "[cluster]\ndevices_per_node = 4\n[parallel]\ndp_shard = 3\n",
     "r.toml:14:1: parallel: dp_replicate auto x dp_shard 3 does not divide "
     "the 4 workers (cluster.nodes 1 x cluster.devices_per_node 4); the nearest parallel.dp_shard are 2 and "
     "4"},
    {"ShardedDdp", "[cluster]\ndevices_per_node = 4\n[parallel]\nzero_stage = 0\ndp_shard = 4\n",
     "r.toml:14:1: parallel.zero_stage = 0 shards nothing but dp_shard is 4 (dp_replicate auto x dp_shard 4"
     ", 4 workers); set parallel.dp_shard = 1 or parallel.zero_stage = 1, 2 or 3"},
    {"ZeroOnOneWorker", "[parallel]\nzero_stage = 3\n",
     "r.toml:12:1: parallel.zero_stage = 3 shards over dp_shard but dp_shard is 1 (dp_replicate auto x "
     "dp_shard auto, 1 worker); use more workers, or set "
     "parallel.zero_stage = 0"},
    {"ZeroOverReplicasOnly",
     "[cluster]\ndevices_per_node = 4\n[parallel]\nzero_stage = 1\ndp_replicate = 4\n",
     "r.toml:14:1: parallel.zero_stage = 1 shards over dp_shard but dp_shard is 1 (dp_replicate 4 x dp_shard "
     "auto, 4 workers); leave the degrees at \"auto\", or set parallel.zero_stage = 0"},
    {"MinAboveLr", "[optimizer]\nlr = 1e-4\nmin_lr = 1e-3\n",
     "r.toml:13:1: optimizer.min_lr (0.001) is above optimizer.lr (1e-4); set optimizer.min_lr = 1e-4 or "
     "less"},
    {"MomentumOfAdamW", "[optimizer]\nmomentum = 0.9\n",
     "r.toml:12:1: optimizer.momentum: adamw (optimizer.name) does not use it, but sgd does; remove it"},
    {"BetasAndEpsOfSgd", "[optimizer]\nname = 'sgd'\nbetas = [0.9, 0.95]\neps = 1e-8\n",
     "2 errors in r.toml:\n  r.toml:13:1: optimizer.betas: sgd (optimizer.name) does not use it, but adamw "
     "and "
     "lion do; remove it\n  r.toml:14:1: optimizer.eps: sgd (optimizer.name) does not use it, but adamw "
     "does; "
     "remove it"},
    {"EpsOfLion", "[optimizer]\nname = 'lion'\neps = 1e-8\n",
     "r.toml:13:1: optimizer.eps: lion (optimizer.name) does not use it, but adamw does; remove it"},
    {"NoSuchOptimizer", "[optimizer]\nname = 'adam'\n",
     "r.toml:12:1: optimizer.name: expected \"adamw\", \"lion\" or \"sgd\", got \"adam\""},
    {"MinAboveTheDefaultOfLion", "[optimizer]\nname = 'lion'\nmin_lr = 2e-4\n",
     "r.toml:13:1: optimizer.min_lr (2e-4) is above optimizer.lr (1e-4); set optimizer.min_lr = 1e-4 or "
     "less"},
    {"WarmupLongerThanTheRun", "[optimizer]\nwarmup_steps = 100\n",
     "r.toml:12:1: optimizer.warmup_steps (100) leaves no steps for the cosine decay, which ends at step 100 "
     "(train.steps); pass --set optimizer.warmup_steps=99 (or fewer) or --set train.steps=101 (or more)"},
    {"WarmupIntoTheWsdDecay", "[optimizer]\nlr_schedule = 'wsd'\nwarmup_steps = 81\n",
     "r.toml:13:1: optimizer.warmup_steps (81) leaves no steps for the wsd decay, which ends at step 100 "
     "(train.steps) and covers the last 0.2 of it; pass --set optimizer.warmup_steps=80 (or fewer) or --set "
     "train.steps=102 (or more)"},
    {"EpsThatIsZeroInFp32", "[optimizer]\neps = 1e-46\n",
     "r.toml:12:1: optimizer.eps: 1e-46 rounds to zero in fp32, in which updates are computed; use 1e-38 or "
     "more"},
    {"AnEmptyListOfLayerTypes",
     "!recipe_version = 1\n[model]\nfamily = 'gemma2'\nlayers = 2\nhidden = 64\nheads = 4\nffn = 96\nvocab = "
     "300\n"
     "layer_types = []\n[[data.train]]\nfiles = ['a']\n[train]\nsteps = 1\nbatch_sequences = 8\n",
     "r.toml:9:1: model.layer_types: expected a list of strings, got an empty list"},
    {"AWindowThatNoLayerHas",
     "!recipe_version = 1\n[model]\nfamily = 'gemma2'\nlayers = 2\nhidden = 64\nheads = 4\nffn = 96\nvocab = "
     "300\n"
     "sliding_window = 9\nlayer_types = ['full_attention']\n[[data.train]]\nfiles = ['a']\n[train]\nsteps = "
     "1\n"
     "batch_sequences = 8\n",
     "r.toml:9:1: model.sliding_window has no effect, because no layer in model.layer_types is "
     "\"sliding_attention\"; remove it"},
    {"PatternThatMatchesNothing", "[optimizer]\nno_decay = ['*.norm', '*.bias']\n",
     "r.toml:12:1: optimizer.no_decay: \"*.norm\" matches no parameter; an example of a parameter name is "
     "model.layers.2.input_layernorm.weight"},
    {"WeightsFromNowhere",
     "!recipe_version = 1\n[model]\npreset = 'toy-1m'\nweights = 'from'\n[data]\nseq_len = "
     "128\n[[data.train]]\nfiles = ['a']\n[train]\nsteps = 1\nbatch_sequences = 1\n",
     "r.toml:4:1: model.weights = \"from\" requires model.from, the folder that contains the weights"},
    {"MissingWeights",
     "!recipe_version = 1\n[model]\npreset = 'toy-1m'\nweights = 'missing/step-1'\n[data]\nseq_len = "
     "128\n[[data.train]]\nfiles = ['a']\n[train]\nsteps = 1\nbatch_sequences = 1\n",
     "r.toml:4:1: model.weights: no such checkpoint folder: /cwd/missing/step-1"},
    {"EveryZeroSteps", "[checkpoint]\nevery_steps = 0\n",
     "r.toml:12:1: checkpoint.every_steps: 0 is out of range; expected a whole number from 1 to 1e12, such "
     "as 10_000 or \"10K\", or \"auto\""},
    {"BracketsInAPattern", "[optimizer]\nno_decay = ['*[bw]*']\n",
     "r.toml:12:1: optimizer.no_decay: \"*[bw]*\" matches no parameter; an example of a parameter name is "
     "model.layers.2.input_layernorm.weight"},
    {"HeaderWithoutAName", "[ = 1\n", "r.toml:11:1: not valid TOML: expected a table name after ["},
    {"EnvThatTheLauncherSets", "[launch.env]\nRANK = '1'\nOMP_NUM_THREADS = '2'\n",
     "2 errors in r.toml:\n  r.toml:13:1: launch.env.OMP_NUM_THREADS: trainctl sets this variable itself; "
     "use cluster.threads_per_worker\n  r.toml:12:1: launch.env.RANK: trainctl sets this variable itself"},
    {"EnvThatIsNoName", "[launch.env]\n'A B' = 'x'\n",
     "r.toml:12:1: launch.env: \"A B\" is not a valid variable name"},
    {"EnvNumber", "[launch.env]\nA = 3\n", "r.toml:12:1: launch.env.A: expected a string, got 3"},
    {"RunNameWithASlash", "[run]\nname = 'a/b'\n",
     "r.toml:12:1: run.name: \"a/b\" is not a valid folder name; use at most 100 bytes, no '/' and no "
     "leading '.'"},
    {"UndefinedVariable", "[[data.train]]\nfiles = ['${NOPE}/x']\n",
     "r.toml:12:1: data.train[1].files: the environment variable ${NOPE} is not set"},
    {"UnclosedVariable", "[[data.train]]\nfiles = ['${NOPE/x']\n",
     "r.toml:12:1: data.train[1].files: \"${NOPE/x\" contains a ${ without a closing }"},
    {"ExtendsNothing", "!extends = 'nope.toml'\n[train]\nsteps = 1\n",
     "r.toml:1:1: extends: cannot open nope.toml: not there"},
    {"ExtendsItself", "!extends = 'r.toml'\n", "r.toml:1:1: extends r.toml, which in turn extends this file"},
    {"ExtendsANumber", "!extends = 3\n", "r.toml:1:1: extends: expected a path or a list of paths"},
    {"SeveralAtOnce", "[optimizer]\nlr = 'x'\nbetaz = [1]\n[parallel]\ncp = 2\nzero_stage = 1\n",
     "4 errors in r.toml:\n  r.toml:12:1: optimizer.lr: expected a number from 0 to 1000, got \"x\"\n  "
     "r.toml:13:1: unknown key optimizer.betaz; did you mean optimizer.betas?\n  r.toml:15:1: parallel.cp = "
     "2: this version does not train with context parallelism\n  r.toml:16:1: parallel.zero_stage = 1 shards "
     "over dp_shard but dp_shard is 1 (dp_replicate auto x dp_shard auto, 1 "
     "worker); use more workers, or set parallel.zero_stage = 0"},
};

struct BadSetCase {
  const char* name;
  std::vector<std::string> sets;  // with kMinimal
  const char* error;
};

inline const BadSetCase kBadSets[] = {
    {"NoEquals", {"train.steps"}, "--set train.steps: expected KEY=VALUE, such as train.steps=100"},
    {"NoKey", {"=5"}, "--set =5: expected KEY=VALUE, such as train.steps=100"},
    {"Nonsense",
     {"]]]]=[[[["},
     "--set ]]]]=[[[[: not valid TOML: while parsing array: encountered end-of-file"},
    {"UnknownKey",
     {"train.stpes=5"},
     "--set train.stpes=5: unknown key train.stpes; did you mean train.steps?"},
    {"WrongType",
     {"train.steps=many"},
     "--set train.steps=many: train.steps: 'many' is not a count, such as \"2M\" or \"100B\"; expected a "
     "whole number from 1 to 1e12, such as 10_000 or \"10K\""},
    {"OutOfRange",
     {"train.steps=0"},
     "--set train.steps=0: train.steps: 0 is out of range; expected a whole number from 1 to 1e12, such as "
     "10_000 or \"10K\""},
    {"BrokenList",
     {"optimizer.betas=[0.9,"},
     "--set optimizer.betas=[0.9,: not valid TOML: while parsing array: encountered end-of-file"},
    {"WordForAList",
     {"optimizer.betas=0.9"},
     "--set optimizer.betas=0.9: optimizer.betas: expected a list of 2 numbers of at least 0 and below 1, "
     "got 0.9"},
    {"IndexTooLarge",
     {"data.train[1].weight=0.5"},
     "--set data.train[1].weight=0.5: data.train has 1 entry, numbered from 0"},
    {"NoIndex",
     {"data.train.weight=0.5"},
     "--set data.train.weight=0.5: unknown key data.train.weight; did you mean data.train[0].weight?"},
    {"BadIndex",
     {"data.train[x].weight=0.5"},
     "--set data.train[x].weight=0.5: \"data.train[x].weight\" needs an index such as [0]"},
    {"ValueForATable", {"train=5"}, "--set train=5: train: expected a table, got a whole number"},
    {"TwoOfAGroup",
     {"train.steps=5", "train.tokens=1M"},
     "--set train.tokens=1M: train.tokens and train.steps (--set train.steps=5) exclude each other; set only "
     "one of them"},
    {"SecondKeyInTheValue",
     {"optimizer.lr=1.0\nbetas = [0, 0]"},
     "--set optimizer.lr=1.0\\nbetas = [0, 0]: optimizer.lr: expected a number from 0 to 1000, got "
     "\"1.0\\u000Abetas = [0, 0]\""},
    {"Version", {"recipe_version=1"}, "--set recipe_version=1: recipe_version can be set only in a file"},
    {"RequiredTakenBack",
     {"train.steps=default"},
     "r.toml: the run has no length; set train.steps, train.tokens or train.epochs"},
    {"MicroBatchThatDoesNotDivide",
     {"train.micro_batch=5"},
     "--set: train.micro_batch (5) does not divide the 12 sequences of each worker: train.batch_sequences "
     "(12) / 1 worker; the nearest are 4 and 6"},
    {"Binary", {"run.name=\377\376"}, "--set run.name=\\xff\\xfe: run.name: the value is not UTF-8 text"},
};

}  // namespace trainctl::recipe
