package main

// Who is asking: the security context of a request.

import "context"

// authMethod is how a caller proved who it is; the words are metric labels.
type authMethod string

const (
	authByNothing authMethod = "none" // authentication is disabled
	authByToken   authMethod = "jwt"
	authByAPIKey  authMethod = "api_key"
	authByForward authMethod = "forward"
)

// securityContext is who asks, and what it may do. It is never changed once made.
type securityContext struct {
	subject     string // "" when the credential names none
	method      authMethod
	permissions permissionSet
	issuer      string  // of a token
	expiry      instant // of a token; zero when the credential has no end
}

// unrestricted is the context of every request while authentication is disabled.
func unrestricted() *securityContext {
	return &securityContext{method: authByNothing, permissions: everyPermission}
}

// may tells whether the context holds p. A nil context may do nothing.
func (sc *securityContext) may(p permission) bool { return sc != nil && sc.permissions.has(p) }

// securityKey is the key of the security context in a context.Context.
type securityKey struct{}

// withSecurity hands sc down to whatever handles the request.
func withSecurity(ctx context.Context, sc *securityContext) context.Context {
	return context.WithValue(ctx, securityKey{}, sc)
}

// securityOf is the security context of a request; nil where no authentication
// has taken place, as on public resources.
func securityOf(ctx context.Context) *securityContext {
	sc, _ := ctx.Value(securityKey{}).(*securityContext)
	return sc
}
