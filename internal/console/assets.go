package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
)

//go:embed assets
var assetFiles embed.FS

// serveAssets registers styles and scripts, and returns the path of their folder. The path
// changes with their content, so browsers may keep them.
func serveAssets(mux *http.ServeMux) (folder string, err error) {
	files, err := fs.Sub(assetFiles, "assets")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	err = fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(files, path)
		sum.Write([]byte(path))
		sum.Write(content)
		return err
	})
	folder = "/assets/" + hex.EncodeToString(sum.Sum(nil)[:8])
	server := http.StripPrefix(folder, http.FileServerFS(files))
	mux.HandleFunc("GET "+folder+"/{path...}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		server.ServeHTTP(w, r)
	})
	return folder, err
}
