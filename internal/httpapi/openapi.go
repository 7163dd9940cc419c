package httpapi

import (
	_ "embed" // the document
	"net/http"
	"strconv"
)

// documentPath is where the server has the description of its interface.
const documentPath = "/v1/openapi.yaml"

// verbDocument is the verb of a request for the document. No client needs a right to it.
const verbDocument = "openapi"

// openAPI is the description of the interface, as YAML (OpenAPI 3.1).
//
//go:embed openapi.yaml
var openAPI []byte

// document answers with the document. It is the same for each client and has no secret, so
// it needs no token.
func (r *request) document(w http.ResponseWriter) (status int, err error) {
	r.verb = verbDocument
	if _, err := r.query(); err != nil {
		return 0, err
	}
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Content-Length", strconv.Itoa(len(openAPI)))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(openAPI) // the client hung up
	return http.StatusOK, nil
}
