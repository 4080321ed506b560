package main

// GET /config of both roles: the effective configuration without its secrets,
// in the form that existing clients know.

import "net/http"

// configMetadataView says when and of what the configuration is shown.
type configMetadataView struct {
	Timestamp   zonedTime `json:"timestamp"`
	Environment string    `json:"environment"`
	Version     string    `json:"version"`
}

// authConfigView is how a role authenticates, without keys.
type authConfigView struct {
	Enabled            bool     `json:"enabled"`
	VerificationMethod string   `json:"verification_method"`
	JWTIssuer          string   `json:"jwt_issuer"`
	JWTAudience        string   `json:"jwt_audience"`
	APIKeyHeader       string   `json:"api_key_header"`
	APIKeyCount        int      `json:"api_key_count"`
	StrictValidation   bool     `json:"strict_validation"`
	AllowedAlgorithms  []string `json:"allowed_algorithms"`
}

// authView is the authentication of a role.
func authView(c *roleWebConfig) authConfigView {
	a := &c.Auth
	return authConfigView{
		Enabled: a.Enabled, VerificationMethod: a.JWTVerificationMethod,
		JWTIssuer: a.JWTIssuer, JWTAudience: a.JWTAudience,
		APIKeyHeader: a.APIKeyHeader, APIKeyCount: len(a.APIKeys),
		StrictValidation: a.StrictValidation, AllowedAlgorithms: a.JWTAllowedAlgorithms,
	}
}

// breakerConfigView is of circuit breakers, which one process has no use for.
type breakerConfigView struct {
	Enabled          bool `json:"enabled"`
	FailureThreshold int  `json:"failure_threshold"`
	TimeoutSeconds   int  `json:"timeout_seconds"`
	SuccessThreshold int  `json:"success_threshold"`
}

// poolConfigView is of database pools: the journal has one writer.
type poolConfigView struct {
	WebAPIPoolSize       int `json:"web_api_pool_size"`
	WebAPIMaxConnections int `json:"web_api_max_connections"`
}

// messagingConfigView is how steps reach their handlers.
type messagingConfigView struct {
	Backend string   `json:"backend"`
	Queues  []string `json:"queues"`
}

// orchestrationConfigView is the orchestration role's answer.
type orchestrationConfigView struct {
	Metadata        configMetadataView  `json:"metadata"`
	Auth            authConfigView      `json:"auth"`
	CircuitBreakers breakerConfigView   `json:"circuit_breakers"`
	DatabasePools   poolConfigView      `json:"database_pools"`
	DeploymentMode  string              `json:"deployment_mode"`
	Messaging       messagingConfigView `json:"messaging"`
	Config          map[string]any      `json:"config"`
}

// workerConfigView is the worker role's answer.
type workerConfigView struct {
	Metadata   configMetadataView  `json:"metadata"`
	WorkerID   string              `json:"worker_id"`
	WorkerType string              `json:"worker_type"`
	Auth       authConfigView      `json:"auth"`
	Messaging  messagingConfigView `json:"messaging"`
	Config     map[string]any      `json:"config"`
}

func (s *service) configMetadata() configMetadataView {
	return configMetadataView{zonedTime(s.clock.now()), s.cfg.Environment, version}
}

// messagingView names the engine's two queues, where there is an engine.
func (s *service) messagingView() messagingConfigView {
	v := messagingConfigView{Backend: "in_process", Queues: []string{}}
	if s.engine != nil {
		v.Queues = []string{"local", "http"}
	}
	return v
}

func (a *orchestrationAPI) config(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, orchestrationConfigView{
		Metadata:       a.svc.configMetadata(),
		Auth:           authView(&a.svc.cfg.Orchestration.Web),
		DatabasePools:  poolConfigView{1, 1},
		DeploymentMode: "standalone",
		Messaging:      a.svc.messagingView(),
		Config:         a.svc.cfg.redacted(),
	})
}

// workerSections are the parts of the configuration that the worker's surface
// shows: its own, and those that it shares.
var workerSections = []string{"environment", "role", "worker", "web", "templates", "docs", "log"}

func (a *workerAPI) config(w http.ResponseWriter, _ *http.Request) error {
	all, shown := a.svc.cfg.redacted(), map[string]any{}
	for _, name := range workerSections {
		shown[name] = all[name]
	}
	return writeJSON(w, http.StatusOK, workerConfigView{
		Metadata:   a.svc.configMetadata(),
		WorkerID:   a.svc.workerID,
		WorkerType: workerType,
		Auth:       authView(&a.svc.cfg.Worker.Web),
		Messaging:  a.svc.messagingView(),
		Config:     shown,
	})
}
