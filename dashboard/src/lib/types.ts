/** Short names for the generated schemas; nothing here is typed by hand. */
import type { Readable } from "openapi-typescript-helpers";
import type { components } from "./api.generated";

/** As the client reads them (`Readable` is what openapi-fetch answers with). */
type Schemas = Readable<components["schemas"]>;

export type Problem = Schemas["Problem"];
export type FieldError = Schemas["FieldError"];
export type Reason = Schemas["Reason"];
export type Me = Schemas["Me"];
export type Role = Me["role"];
export type User = Schemas["User"];
export type ApiKey = Schemas["ApiKey"];
export type Secret = Schemas["Secret"];
export type BrowserSession = Schemas["BrowserSession"];
export type AuditEntry = Schemas["AuditEntry"];
export type JobSummary = Schemas["JobSummary"];
export type Job = Schemas["Job"];
export type JobEdit = Schemas["JobEdit"];
export type SavedView = Schemas["SavedView"];
export type JobPage = Schemas["JobPage"];
export type JobSpec = Job["spec"];
export type JobState = Schemas["JobState"];
export type JobProgress = Schemas["JobProgress"];
export type Failure = Schemas["Failure"];
export type Incident = Schemas["Incident"];
export type Goodput = Schemas["Goodput"];
export type TimePart = Schemas["TimePart"];
export type Performance = Schemas["Performance"];
export type Artifact = Schemas["Artifact"];
export type FolderPage = Schemas["FolderPage"];
export type LeftFile = Schemas["LeftFile"];
export type LeftFolder = Schemas["LeftFolder"];
export type Chart = Schemas["Chart"];
export type ChartDefinition = Schemas["ChartDefinition-Output"];
export type JobMedia = Schemas["JobMedia"];
export type MediaKey = Schemas["MediaKey"];
export type MediaAtStep = Schemas["MediaAtStep"];
export type MediaObject = Schemas["MediaObject"];
export type MediaHistograms = Schemas["MediaHistograms"];
export type LoggedHistogram = Schemas["LoggedHistogram"];
export type LoggedTable = Schemas["LoggedTable"];
export type JobGradients = Schemas["JobGradients"];
export type RequestedGradients = Schemas["RequestedGradients"];
export type StepGradients = Schemas["StepGradients"];
export type ParameterGradients = Schemas["ParameterGradients"];
export type ProfileRequest = Schemas["ProfileRequest"];
export type JobStacks = Schemas["JobStacks"];
export type RankStacks = Schemas["RankStacks"];
export type SampleAudit = Schemas["SampleAudit"];
export type SampleRange = Schemas["SampleRange"];
export type EpochUse = Schemas["EpochUse"];
export type Comparison = Schemas["Comparison"];
export type ComparedJob = Schemas["ComparedJob"];
export type MetricComparison = Schemas["MetricComparison"];
export type ParameterComparison = Schemas["ParameterComparison"];
export type SpecDifference = Schemas["SpecDifference"];
export type Rank = Schemas["Rank"];
export type Generation = Schemas["Generation"];
export type Plan = Schemas["Plan"];
export type Memory = NonNullable<Plan["memory_per_rank"]>;
export type CommunicationChoice = Schemas["CommunicationChoice"];
export type PlanChoice = Schemas["PlanChoice"];
export type PlanOption = Schemas["PlanOption"];
export type RankPlacement = Schemas["RankPlacement"];
export type Resize = Schemas["Resize"];
export type LogEntry = Schemas["LogEntry"];
export type LogPage = Schemas["LogPage"];
export type JobMetrics = Schemas["JobMetrics"];
export type Heatmap = Schemas["Heatmap"];
export type Curve = Schemas["Curve"];
export type CheckpointFiles = Schemas["CheckpointFiles"];
export type ModelVersion = Schemas["ModelVersion"];
export type RegisteredModel = Schemas["RegisteredModel"];
export type RegisterVersion = Schemas["RegisterVersion"];
export type Checkpoint = Schemas["Checkpoint"];
export type ListedCheckpoint = Schemas["ListedCheckpoint"];
export type Event = Schemas["Event"];
export type EventPage = Schemas["EventPage"];
export type Node = Schemas["Node"];
export type SlotUse = Schemas["SlotUse"];
export type GpuReading = Schemas["GpuReading"];
export type HostReading = Schemas["HostReading"];
export type NodeInvitation = Schemas["NodeInvitation"];
export type NodeLaunch = Schemas["NodeLaunch"];
export type NodeLaunches = Schemas["NodeLaunches"];
export type NodePool = Schemas["NodePool"];
export type NodeRequest = Schemas["NodeRequest"];
export type ClusterSummary = Schemas["ClusterSummary"];
export type NodeMetrics = Schemas["NodeMetrics"];
export type CardCurve = Schemas["CardCurve"];
export type IdleCard = Schemas["IdleCard"];
export type JobUsage = Schemas["JobUsage"];
export type Storage = Schemas["Storage"];
export type StoredJob = Schemas["StoredJob"];
export type BundleChanges = Schemas["BundleChanges"];
export type NotificationChannel = Schemas["NotificationChannel"];
export type NotificationRule = Schemas["NotificationRule"];
export type NotificationEvent = Schemas["NotificationEvent"];
export type Delivery = Schemas["NotificationDelivery"];
export type NewChannel = Schemas["ChannelCreate"];
export type NewRule = Schemas["RuleCreate"];
export type ExperimentSummary = Schemas["ExperimentSummary"];
export type Experiment = Schemas["Experiment"];
export type ExperimentState = Experiment["state"];
export type ExperimentPlan = Schemas["ExperimentPlan"];
export type PlannedConfiguration = Schemas["PlannedConfiguration"];
export type ExperimentAnalysis = Schemas["ExperimentAnalysis"];
export type Trial = Schemas["Trial"];
export type TrialCounts = Schemas["TrialCounts"];
export type Analysis = Schemas["Analysis"];
export type Configuration = Schemas["Configuration"];
export type Estimate = Schemas["Estimate"];
export type Fit = Schemas["Fit"];
export type Outlier = Schemas["Outlier"];
export type Finding = Schemas["Sentence"];
export type LossSeries = Schemas["Series"];

/** A float as it travels: NaN and the infinities are strings. */
export type AnyFloat = number | "NaN" | "Infinity" | "-Infinity";

/** What every WebSocket stream sends. */
export interface StreamFrame {
  seq: number;
  topic: "metrics" | "logs" | "events";
  type: "record" | "line" | "event" | "hello" | "gap" | "reset" | "ping";
  data: Record<string, unknown>;
}

/** The payload of a `record` frame. */
export interface MetricRecord {
  rank: number;
  generation: number;
  step: number;
  time: number;
  values: Record<string, AnyFloat>;
}
