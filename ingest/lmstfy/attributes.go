package lmstfy

import (
	"bytes"
	"encoding/json"
	"strings"
)

const (
	headerJobVersion = "Enable-Job-Version"
	attributePrefix  = "Job-Attr-"

	maxAttributes     = 16
	maxAttributeName  = 32  // bytes, longer ones are cut
	maxAttributeValue = 128 // bytes, longer ones are cut
)

// attributes reads the attributes of a job from the headers, as a JSON object with sorted
// keys; nil: there are none. Of two headers with one name, the first counts.
func (c *call) attributes() ([]byte, *rejection) {
	h := &c.Ctx.Request.Header
	if !bytes.EqualFold(h.Peek(headerJobVersion), []byte("yes")) {
		return nil, nil
	}
	var found map[string]string
	for name, value := range h.All() {
		if len(name) < len(attributePrefix) ||
			!bytes.EqualFold(name[:len(attributePrefix)], []byte(attributePrefix)) {
			continue
		}
		key := strings.ToLower(string(name[len(attributePrefix):]))
		key = key[:min(len(key), maxAttributeName)]
		if _, twice := found[key]; twice {
			continue
		}
		if len(found) == maxAttributes {
			return nil, badRequest("too many attributes, cannot exceed 16")
		}
		if found == nil {
			found = map[string]string{}
		}
		found[key] = string(value[:min(len(value), maxAttributeValue)])
	}
	if found == nil {
		return nil, nil
	}
	object, _ := json.Marshal(found) // of strings it cannot fail
	return object, nil
}
